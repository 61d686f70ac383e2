// Members of gangs on one node: prepared first, and begun together with the others.
#include <gtest/gtest.h>

#include <algorithm>

#include "node/process/launch.h"
#include "node/testing/node_core_fakes.h"

namespace gpusched {
namespace {

using testing::Node;

const AttemptKey kFirst{JobId{7}, 1, 0};
const AttemptKey kThird{JobId{7}, 1, 2};

/// Two members on n1 and one on n2, each with two GPUs.
v1::StartAttempt gang_order(const AttemptKey& key) {
  v1::StartAttempt order;
  v1::JobSpec spec;
  spec.add_command("/bin/true");
  *order.mutable_key() = to_wire(key);
  order.set_spec(spec.SerializeAsString());
  for (const char* node : {"n1", "n1", "n2"}) {
    v1::Gang::Member& member = *order.mutable_gang()->add_members();
    member.set_node(node);
    member.set_address(std::string(node) + ".example");
    member.set_gpus(2);
  }
  order.mutable_gang()->set_master_port(23456);
  return order;
}

void order(Node& node, const AttemptKey& key) {
  v1::SchedulerMessage message;
  *message.mutable_start() = gang_order(key);
  node.receive(message);
}

void go(Node& node, const AttemptKey& key) {
  v1::SchedulerMessage message;
  *message.mutable_go()->mutable_key() = to_wire(key);
  node.receive(message);
}

void prepared(Node& node, const AttemptKey& key) {
  node.core->on_shim_prepared(key);
  node.core->settle();
}

TEST(GangMember, OfManyIsStartedByOneMessageForItsNode) {
  Node node;
  node.connect();
  v1::SchedulerMessage message;
  v1::StartAttempt& common = *message.mutable_start_members()->mutable_common();
  common = gang_order(kFirst);
  common.clear_key();
  for (const AttemptKey& key : {kFirst, AttemptKey{JobId{7}, 1, 1}})
    *message.mutable_start_members()->add_members()->mutable_key() = to_wire(key);
  node.receive(message);
  ASSERT_EQ(node.spawner.started.size(), 2u);
  EXPECT_EQ(node.spawner.started[1].key.member, 1u);
  EXPECT_TRUE(node.spawner.started[1].gated);
  EXPECT_EQ(node.spawner.started[1].hosts, node.spawner.started[0].hosts);
}

TEST(GangMember, OfTenThousandNodesHasAnEnvironmentThatTheKernelTakes) {
  v1::StartAttempt order = gang_order(kFirst);
  order.mutable_gang()->clear_members();
  for (int i = 0; i < 10'000; ++i) {
    v1::Gang::Member& member = *order.mutable_gang()->add_members();
    member.set_node("node-with-a-name-" + std::to_string(i));
    member.set_address("10.0.0.1");
  }
  const Result<SpawnRequest> request = plan_launch(order, {}, {}, nullptr);
  ASSERT_TRUE(request.ok());
  for (const std::string& variable : request->environment) EXPECT_LT(variable.size(), 128u * 1024);
  EXPECT_EQ(std::count(request->hosts.begin(), request->hosts.end(), '\n'), 10'000);
}

TEST(GangMember, IsStartedGatedAndSaysWhenItIsPrepared) {
  Node node;
  node.connect();
  order(node, kFirst);
  ASSERT_EQ(node.spawner.started.size(), 1u);
  EXPECT_TRUE(node.spawner.started[0].gated);
  EXPECT_EQ(node.spawner.started[0].port, 23456u);
  EXPECT_EQ(node.count(v1::Report::kPrepared), 0u);
  prepared(node, kFirst);
  EXPECT_EQ(node.count(v1::Report::kPrepared), 1u);
  EXPECT_TRUE(node.spawner.gone.empty());
  go(node, kFirst);
  EXPECT_EQ(node.spawner.gone, std::vector<AttemptKey>{kFirst});
}

TEST(GangMember, OfAnUnacknowledgedWordIsRemindedByARepeatedOrder) {
  Node node;
  node.connect();
  order(node, kFirst);
  prepared(node, kFirst);
  node.acknowledge_all();
  order(node, kFirst);
  EXPECT_EQ(node.spawner.started.size(), 1u);
  EXPECT_EQ(node.count(v1::Report::kPrepared), 2u);
}

TEST(GangMember, ToldToGoBeforeItIsPreparedGoesWhenItIs) {
  Node node;
  node.connect();
  order(node, kFirst);
  go(node, kFirst);
  EXPECT_TRUE(node.spawner.gone.empty());
  prepared(node, kFirst);
  EXPECT_EQ(node.spawner.gone, std::vector<AttemptKey>{kFirst});
  EXPECT_EQ(node.count(v1::Report::kPrepared), 0u);
}

TEST(GangMember, ThatRunsAnswersAGoWithItsStart) {
  Node node;
  node.connect();
  order(node, kFirst);
  prepared(node, kFirst);
  node.core->on_shim_started(kFirst, 123, 1);
  node.core->settle();
  node.acknowledge_all();
  go(node, kFirst);
  EXPECT_TRUE(node.spawner.gone.empty());
  EXPECT_EQ(node.count(v1::Report::kStarted), 2u);
}

TEST(GangMember, WaitsThroughARestartOfTheAgent) {
  Node node;
  node.connect();
  order(node, kFirst);
  prepared(node, kFirst);
  node.begin("boot-1");
  EXPECT_EQ(node.spawner.adopted, std::vector<AttemptKey>{kFirst});
  node.connect();
  prepared(node, kFirst);
  EXPECT_EQ(node.count(v1::Report::kPrepared), 1u);
  go(node, kFirst);
  EXPECT_EQ(node.spawner.gone, std::vector<AttemptKey>{kFirst});
}

TEST(GangMember, ThatTheStoreForgotIsKnownAgain) {
  Node node;
  node.connect();
  prepared(node, kFirst);
  EXPECT_EQ(node.count(v1::Report::kPrepared), 1u);
  order(node, kFirst);
  EXPECT_TRUE(node.spawner.started.empty());
}

TEST(GangMember, AnotherAttemptsGoIsNothing) {
  Node node;
  node.connect();
  go(node, kFirst);
  EXPECT_TRUE(node.spawner.gone.empty());
  order(node, kFirst);
  EXPECT_EQ(node.spawner.started.size(), 1u);
}

// This holds for any job: it stands here because the test of the core is long enough.
TEST(NodeCoreEnd, OfAJobWhoseDevicesAreExaminedIsSyncedAndTold) {
  Node node;
  node.connect();
  node.order_start(kFirst, {{.index = 0, .generation = 1}});
  node.core->on_shim_started(kFirst, 123, 1);
  node.core->settle();
  node.devices.slow = true;
  node.end(kFirst, 1);
  node.link.sent.clear();
  node.core->on_link_down();
  node.connect();
  ASSERT_EQ(node.link.sent.front().register_().attempts_size(), 1);
  EXPECT_TRUE(node.link.sent.front().register_().attempts(0).ended()) << "its end is known and follows";
  const uint64_t before = node.store.sync_asked;
  node.pass(seconds(3));
  EXPECT_GT(node.store.sync_asked, before);
  node.sync();
  EXPECT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.last_outcome().exit_code(), 1);
}

bool holds(const std::vector<std::string>& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

TEST(GangLaunch, LaunchersFindWhatTheyExpect) {
  const auto request = plan_launch(gang_order(kThird), {}, {});
  ASSERT_TRUE(request.ok());
  for (const char* entry :
       {"RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "NODE_RANK=1", "GPUS_PER_NODE=2",
        "MASTER_ADDR=n1.example", "MASTER_PORT=23456", "GPU_SCHEDULER_NODE_COUNT=2",
        "GPU_SCHEDULER_NODES=n1,n2", "GPU_SCHEDULER_PART=0"}) {
    EXPECT_TRUE(holds(request->environment, entry)) << entry;
  }
  EXPECT_EQ(request->hosts, "n1.example slots=4\nn2.example slots=2\n");
  EXPECT_EQ(request->port, 0u) << "only the first member listens there";
}

TEST(GangLaunch, MembersOnOneNodeHaveRanksOfTheirOwnThere) {
  const auto request = plan_launch(gang_order({JobId{7}, 1, 1}), {}, {});
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(holds(request->environment, "RANK=1"));
  EXPECT_TRUE(holds(request->environment, "LOCAL_RANK=1"));
  EXPECT_TRUE(holds(request->environment, "LOCAL_WORLD_SIZE=2"));
  EXPECT_TRUE(holds(request->environment, "GPUS_PER_NODE=4"));
}

TEST(GangLaunch, TheJobMayNameItsOwnMeetingPlaceAndNoOtherRank) {
  v1::StartAttempt order = gang_order(kFirst);
  v1::JobSpec spec;
  spec.add_command("/bin/true");
  (*spec.mutable_environment())["MASTER_ADDR"] = "10.0.0.9";
  (*spec.mutable_environment())["RANK"] = "17";
  order.set_spec(spec.SerializeAsString());
  const auto request = plan_launch(order, {}, {});
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(holds(request->environment, "MASTER_ADDR=10.0.0.9"));
  EXPECT_TRUE(holds(request->environment, "RANK=0"));
}

TEST(GangLaunch, AJobOfOneMemberIsNeitherGatedNorRanked) {
  v1::StartAttempt order = gang_order(kFirst);
  order.clear_gang();
  const auto request = plan_launch(order, {}, {});
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->gated);
  EXPECT_TRUE(std::none_of(request->environment.begin(), request->environment.end(),
                           [](const std::string& entry) { return entry.starts_with("RANK="); }));
}

}  // namespace
}  // namespace gpusched
