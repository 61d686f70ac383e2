// An attempt's number may be given twice, when the scheduler's data was restored from an older copy: when it
// was placed tells the two apart.
#include <gtest/gtest.h>

#include "node/core/node_core.h"
#include "node/testing/attempt_key.h"
#include "node/testing/node_core_fakes.h"

namespace gpusched {
namespace {

using testing::Node;

constexpr int64_t kOurs = 1'000;
constexpr int64_t kOther = 2'000;

v1::SchedulerMessage start_order(int64_t placed_at_ns) {
  v1::JobSpec spec;
  spec.add_command("/bin/true");
  v1::SchedulerMessage message;
  *message.mutable_start()->mutable_key() = to_wire(kKey);
  message.mutable_start()->set_spec(spec.SerializeAsString());
  message.mutable_start()->set_placed_at_ns(placed_at_ns);
  return message;
}

v1::SchedulerMessage stop_order(int64_t placed_at_ns) {
  v1::SchedulerMessage message;
  *message.mutable_stop()->mutable_key() = to_wire(kKey);
  message.mutable_stop()->set_placed_at_ns(placed_at_ns);
  return message;
}

/// An attempt that runs.
struct Running : Node {
  Running() {
    connect();
    receive(start_order(kOurs));
    core->on_shim_started(kKey, 100, 1);
    core->settle();
    acknowledge_all();
    link.sent.clear();
  }
  /// The agent's registration when it connects again.
  v1::Register registration() {
    core->on_link_down();
    link.sent.clear();
    core->on_link_up();
    return link.sent.at(0).register_();
  }
};

TEST(AttemptIdentity, AnAcknowledgementForAnotherAttemptOfThatNumberClosesNothing) {
  Running node;
  node.receive(start_order(kOther));
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.reports(v1::Report::kEnded)[0].ended().placed_at_ns(), kOther);
  node.acknowledge_all();
  EXPECT_FALSE(node.store.disk.attempts[kKey].acked);
  EXPECT_FALSE(node.store.disk.attempts[kKey].closed);
  const v1::Register out = node.registration();
  ASSERT_EQ(out.attempts_size(), 1) << "the scheduler would take it for lost";
  EXPECT_EQ(out.attempts(0).placed_at_ns(), kOurs);
  EXPECT_FALSE(out.attempts(0).ended());
}

TEST(AttemptIdentity, AStopOfAnotherAttemptOfThatNumberStopsNothing) {
  Running node;
  node.receive(stop_order(kOther));
  EXPECT_TRUE(node.spawner.stopped.empty());
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.reports(v1::Report::kEnded)[0].ended().placed_at_ns(), kOther);
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::STOPPED);
  node.receive(stop_order(kOurs));
  EXPECT_EQ(node.spawner.stopped.size(), 1u);
}

TEST(AttemptIdentity, TheReleaseOfAGangThatIsAnotherOneLetsNothingGo) {
  Node node;
  node.connect();
  node.receive(start_order(kOurs));
  node.core->on_shim_prepared(kKey);
  v1::SchedulerMessage go;
  *go.mutable_go()->mutable_key() = to_wire(kKey);
  go.mutable_go()->set_placed_at_ns(kOther);
  node.receive(go);
  EXPECT_TRUE(node.spawner.gone.empty());
  go.mutable_go()->set_placed_at_ns(kOurs);
  node.receive(go);
  EXPECT_EQ(node.spawner.gone, std::vector<AttemptKey>{kKey});
}

TEST(AttemptIdentity, ItsOwnEndIsClosedWhenItIsAcknowledged) {
  Running node;
  node.end(kKey);
  node.sync();
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.reports(v1::Report::kEnded)[0].ended().placed_at_ns(), kOurs);
  node.acknowledge_all();
  EXPECT_TRUE(node.store.disk.attempts[kKey].closed);
  EXPECT_EQ(node.registration().attempts_size(), 0);
}

TEST(AttemptIdentity, AnAcknowledgementForAnotherAttemptIsNoneForItsOwnEnd) {
  Running node;
  node.receive(start_order(kOther));
  node.end(kKey);
  node.sync();
  ASSERT_EQ(node.count(v1::Report::kEnded), 2u);
  for (const v1::Report& report : node.reports(v1::Report::kEnded)) {
    v1::SchedulerMessage message;
    message.mutable_ack()->add_report_ids(report.id());
    node.receive(message);
    const bool own = report.ended().placed_at_ns() == kOurs;
    EXPECT_EQ(node.store.disk.attempts[kKey].acked, own);
  }
}

}  // namespace
}  // namespace gpusched
