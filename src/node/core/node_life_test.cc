#include <gtest/gtest.h>

#include "node/core/node_core.h"
#include "node/testing/attempt_key.h"
#include "node/testing/node_core_fakes.h"

namespace gpusched {
namespace {

using testing::Node;

/// A node whose hooks answer when the test says so.
class HookedNode : public Node {
 public:
  explicit HookedNode(bool prolog = false, bool epilog = false) {
    hooks.with_prolog = prolog;
    hooks.with_epilog = epilog;
    use_hooks = true;
    begin("boot-1");
  }
  void checked(const std::string& problem) {
    core->on_checked(problem);
    core->settle();
  }
  v1::Validated last_verdict() const { return reports(v1::Report::kValidated).back().validated(); }
};

TEST(NodeLife, ANodeWithHooksSaysThatItValidatesAndThenHow) {
  HookedNode node;
  node.connect();
  EXPECT_TRUE(node.link.sent.front().register_().validates());
  EXPECT_EQ(node.count(v1::Report::kValidated), 0u);
  EXPECT_EQ(node.hooks.checks, 1);
  node.checked("");
  EXPECT_TRUE(node.last_verdict().ok());
}

TEST(NodeLife, AFailedCheckIsReportedAndSoonRepeated) {
  HookedNode node;
  node.connect();
  node.checked("the disk has 3 MB left");
  EXPECT_FALSE(node.last_verdict().ok());
  EXPECT_EQ(node.last_verdict().detail(), "the disk has 3 MB left");
  node.pass(seconds(11));
  EXPECT_EQ(node.hooks.checks, 2);
  node.checked("");
  EXPECT_TRUE(node.last_verdict().ok());
}

TEST(NodeLife, AVerdictThatDoesNotChangeIsSaidOnceAConnection) {
  HookedNode node;
  node.connect();
  node.checked("");
  node.acknowledge_all();
  node.pass(minutes(6));
  EXPECT_EQ(node.hooks.checks, 2);
  node.checked("");
  EXPECT_EQ(node.count(v1::Report::kValidated), 1u);
  node.core->on_link_down();
  node.connect();
  EXPECT_EQ(node.count(v1::Report::kValidated), 2u);
}

TEST(NodeLife, TheSchedulerMayAskForAnotherCheck) {
  HookedNode node;
  node.connect();
  node.checked("");
  v1::SchedulerMessage ask;
  ask.mutable_validate();
  node.receive(ask);
  node.receive(ask);
  EXPECT_EQ(node.hooks.checks, 2);
}

TEST(NodeLife, AClockFarFromTheSchedulersFailsTheChecks) {
  HookedNode node;
  node.core->on_link_up();
  v1::SchedulerMessage registered;
  registered.mutable_registered()->set_heartbeat_ms(1000);
  registered.mutable_registered()->set_unix_ms((node.clock.wall() - seconds(3'600)).ms());
  node.receive(registered);
  node.checked("");
  EXPECT_FALSE(node.last_verdict().ok());
  EXPECT_NE(node.last_verdict().detail().find("3600 s ahead"), std::string::npos);
  EXPECT_FALSE(node.files.confirmed.has_value());  // No output is old by such a clock.
  registered.mutable_registered()->set_unix_ms(node.clock.wall().ms());
  node.receive(registered);
  EXPECT_EQ(node.files.confirmed, node.clock.wall());
}

TEST(NodeLife, AnAttemptStartsAfterItsProlog) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  EXPECT_TRUE(node.spawner.started.empty());
  ASSERT_EQ(node.hooks.prologs, std::vector<AttemptKey>{kKey});
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  EXPECT_EQ(node.spawner.started.size(), 1u);
}

TEST(NodeLife, AFailedPrologIsTheNodesFaultAndHoldsIt) {
  HookedNode node(true);
  node.connect();
  node.checked("");
  node.order_start(kKey, {{.index = 0, .generation = 1}});
  node.core->on_prolog_done(kKey, "the prolog exited with 1: no scratch");
  node.core->settle();
  node.sync();
  EXPECT_TRUE(node.spawner.started.empty());
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::NODE_FAULT);
  EXPECT_FALSE(node.last_verdict().ok());
  node.pass(seconds(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeLife, AFaultStandsForAWhileThoughChecksPass) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  node.core->on_prolog_done(kKey, "the prolog exited with 1");
  node.checked("");
  EXPECT_FALSE(node.last_verdict().ok());
  node.pass(seconds(61));
  node.checked("");
  EXPECT_TRUE(node.last_verdict().ok());
}

TEST(NodeLife, StoppedDuringItsPrologAnAttemptNeverStarts) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  node.order_stop(kKey);
  EXPECT_EQ(node.count(v1::Report::kEnded), 0u);
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  node.sync();
  EXPECT_TRUE(node.spawner.started.empty());
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::STOPPED);
}

TEST(NodeLife, DevicesAreReleasedAfterTheEpilog) {
  HookedNode node(false, true);
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 1}});
  node.core->on_shim_started(kKey, 99, 1);
  node.end(kKey);
  node.sync();
  EXPECT_EQ(node.count(v1::Report::kEnded), 1u);
  node.pass(minutes(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  ASSERT_EQ(node.hooks.epilogs, std::vector<AttemptKey>{kKey});
  node.core->on_epilog_done(kKey, "");
  node.core->settle();
  node.pass(seconds(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeLife, APrologThatBeganHasItsEpilogThoughTheCommandNeverRan) {
  Node node;
  node.use_hooks = true;
  node.hooks.with_prolog = node.hooks.with_epilog = true;
  node.begin("boot-1");
  node.connect();
  node.order_start(kKey);
  ASSERT_EQ(node.hooks.prologs.size(), 1u);
  node.order_stop(kKey);
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(node.hooks.epilogs, std::vector<AttemptKey>{kKey});
}

TEST(NodeLife, APrologOfAnEarlierAgentHasItsEpilog) {
  Node node;
  node.use_hooks = true;
  node.hooks.with_prolog = node.hooks.with_epilog = true;
  node.begin("boot-1");
  node.connect();
  node.order_start(kKey);
  node.begin("boot-1");  // The first agent was killed while the prolog ran.
  node.core->on_shim_lost(kKey, "no trace of it");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.hooks.epilogs, std::vector<AttemptKey>{kKey});
}

TEST(NodeLife, WhileTheEpilogRunsItsDevicesAreNotSaidToBeBusy) {
  Node node;
  node.use_hooks = true;
  node.hooks.with_epilog = true;
  node.begin("boot-1");
  node.connect();
  node.order_start(kKey, {{.index = 1, .generation = 4}});
  node.core->on_shim_started(kKey, 1, 1);
  node.end(kKey);
  node.sync();
  v1::SchedulerMessage check;
  check.mutable_check_release()->add_devices()->set_index(1);
  check.mutable_check_release()->mutable_devices(0)->set_generation(4);
  node.receive(check);
  ASSERT_EQ(node.count(v1::Report::kDraining), 1u);
  EXPECT_TRUE(node.reports(v1::Report::kDraining)[0].draining().in_epilog());
  node.pass(minutes(10));
  node.devices.readings[1].processes = {4711};
  node.core->on_epilog_done(kKey, "");
  node.core->settle();
  node.pass(seconds(3));
  node.receive(check);
  const v1::Draining last = node.reports(v1::Report::kDraining).back().draining();
  EXPECT_FALSE(last.in_epilog());
  EXPECT_GT(last.checked_ms(), 0);
  EXPECT_LT(last.checked_ms(), 10'000) << "the epilog's time is counted";
}

TEST(NodeLife, ANodeThatCannotBeginAttemptsIsHeldForLongerEachTime) {
  Node node;
  node.use_hooks = true;
  node.begin("boot-1");
  node.connect();
  node.core->on_checked("");
  node.core->settle();
  Duration stood;
  for (uint64_t job = 1; job <= 4; ++job) {
    const AttemptKey key{JobId{job}, 1, 0};
    node.order_start(key);
    v1::Outcome outcome;
    outcome.set_cause(v1::Outcome::NODE_FAULT);
    outcome.set_detail("cannot create the attempt's folder");
    node.core->on_shim_ended(key, outcome);
    node.core->settle();
    EXPECT_FALSE(node.reports(v1::Report::kValidated).back().validated().ok());
    const Time since = node.clock.now;
    const int checks = node.hooks.checks;
    while (!node.reports(v1::Report::kValidated).back().validated().ok()) {
      node.pass(seconds(5));
      if (node.hooks.checks > checks) node.core->on_checked("");
      node.core->settle();
    }
    EXPECT_GT(node.clock.now - since, stood);
    stood = node.clock.now - since;
  }
  node.order_start(kKey);
  node.core->on_shim_started(kKey, 1, 1);
}

TEST(NodeLife, ChecksThatDoNotAnswerHaveFailed) {
  Node node;
  node.use_hooks = true;
  node.begin("boot-1");
  node.connect();
  node.core->on_checked("");
  node.core->settle();
  EXPECT_TRUE(node.reports(v1::Report::kValidated).back().validated().ok());
  node.pass(minutes(10));  // The next ones hang.
  EXPECT_FALSE(node.reports(v1::Report::kValidated).back().validated().ok());
  EXPECT_NE(node.reports(v1::Report::kValidated).back().validated().detail().find("have not finished"),
            std::string::npos);
  node.core->on_checked("");
  node.core->settle();
  EXPECT_TRUE(node.reports(v1::Report::kValidated).back().validated().ok());
}

TEST(NodeLife, AnEpilogThatTheLastAgentDidNotFinishRunsAgain) {
  HookedNode node(false, true);
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 1}});
  node.core->on_shim_started(kKey, 99, 1);
  node.end(kKey);
  node.sync();
  node.acknowledge_all();
  node.begin("boot-1");
  node.connect();
  EXPECT_EQ(node.hooks.epilogs.size(), 2u);
  v1::SchedulerMessage check;  // As a scheduler asks whose node comes back with devices that drain.
  check.mutable_check_release()->add_devices()->set_generation(1);
  node.receive(check);
  node.pass(seconds(10));
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  EXPECT_TRUE(node.reports(v1::Report::kDraining).back().draining().in_epilog());
  node.core->on_epilog_done(kKey, "");
  node.core->settle();
  node.pass(seconds(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeLife, ANewTimeLimitReachesTheShimOrWhatIsYetToStart) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  v1::SchedulerMessage change;
  *change.mutable_change()->mutable_key() = to_wire(kKey);
  change.mutable_change()->set_max_runtime_ms(5'000);
  node.receive(change);
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  ASSERT_EQ(node.spawner.started.size(), 1u);
  EXPECT_EQ(node.spawner.started[0].max_runtime, seconds(5));
  change.mutable_change()->set_max_runtime_ms(9'000);
  node.receive(change);
  EXPECT_EQ(node.spawner.new_limits.back(), (std::pair{kKey, Duration{seconds(9)}}));
}

TEST(NodeLife, ARebootIsHandedToTheHooks) {
  HookedNode node;
  node.connect();
  v1::SchedulerMessage order;
  order.mutable_reboot()->set_reason("kernel update");
  node.receive(order);
  EXPECT_EQ(node.hooks.reboots, std::vector<std::string>{"kernel update"});
}

const v1::Register& registration(const Node& node) { return node.link.sent.front().register_(); }

TEST(NodeLife, OfAnEarlierBootEveryAttemptIsRegisteredAsEnded) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.core->on_shim_started(kKey, 99, 1);
  node.core->settle();
  node.begin("boot-1");
  node.connect();
  ASSERT_EQ(registration(node).attempts_size(), 1);
  EXPECT_FALSE(registration(node).attempts(0).ended());
  node.begin("boot-2");
  node.connect();  // Before its outcome, which its shim wrote while no agent ran, is found.
  ASSERT_EQ(registration(node).attempts_size(), 1);
  EXPECT_TRUE(registration(node).attempts(0).ended());
  node.end(kKey, 5);
  node.sync();
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.last_outcome().exit_code(), 5);
}

TEST(NodeLife, AnAttemptOfAnEarlierBootStaysOneForTheSecondAgentOfABoot) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.begin("boot-2");  // It ends before it has found out anything.
  node.begin("boot-2");
  node.connect();
  ASSERT_EQ(registration(node).attempts_size(), 1);
  EXPECT_TRUE(registration(node).attempts(0).ended());
  node.core->on_shim_lost(kKey, "no process");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::NODE_LOST);
}

}  // namespace
}  // namespace gpusched
