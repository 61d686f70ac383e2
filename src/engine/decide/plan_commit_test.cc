#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// A plan that puts the job's next attempt on these devices as they are now.
PlanGroup group_of(const TestEngine& engine, JobId job, NodeId node, uint64_t device_mask) {
  MemberPlacement member{.node = node, .device_mask = device_mask};
  for (uint32_t i = 0; i < engine.node(node).devices.size(); ++i) {
    if (((device_mask >> i) & 1) != 0) member.generations.push_back(engine.device(node, i).generation);
  }
  return {.job = job, .attempt = engine.job(job).attempt_count + 1, .members = {member}};
}

class CommitPlanTest : public ::testing::Test {
 protected:
  void commit(std::vector<PlanGroup> groups) { engine.apply(CommitPlan{.groups = std::move(groups)}); }
  void expect_dropped(const PlanGroup& group) {
    const Digest before = engine.digest();
    commit({group});
    EXPECT_TRUE(engine.events().empty());
    EXPECT_EQ(engine.digest(), before);
  }
  TestEngine engine;
};

TEST_F(CommitPlanTest, APlacedJobHoldsItsDevicesCpuAndMemory) {
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  const JobId job = engine.submit({.gpus = 2, .cpu_milli = 1500, .memory_mb = 100});
  commit({group_of(engine, job, node, 0b0110)});
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
  EXPECT_EQ(engine.job(job).attempt_count, 1u);
  EXPECT_EQ(engine.job(job).device_mask, 0b0110u);
  EXPECT_EQ(engine.node(node).free_mask, 0b1001u);
  EXPECT_EQ(engine.node(node).cpu_milli_used, 1500);
  EXPECT_EQ(engine.node(node).memory_mb_used, 100);
  EXPECT_EQ(engine.device(node, 1).state, DeviceState::kHeld);
  EXPECT_EQ(engine.device(node, 1).held_by.job, job);
  EXPECT_EQ(engine.tenant(kDefaultTenant).usage,
            (Amount{.gpus = 2, .gpu_memory_mb = 0, .cpu_milli = 1500, .memory_mb = 100, .jobs = 1}));
  EXPECT_TRUE(engine.state().line.empty());
}

TEST_F(CommitPlanTest, AStaleGenerationIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  PlanGroup group = group_of(engine, engine.submit_gpus(1), node, 1);
  group.members[0].generations[0] += 1;
  expect_dropped(group);
}

TEST_F(CommitPlanTest, AStaleAttemptIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit_gpus(1);
  for (const uint32_t attempt : {0u, 2u}) {
    PlanGroup group = group_of(engine, job, node, 1);
    group.attempt = attempt;
    expect_dropped(group);
  }
}

TEST_F(CommitPlanTest, AJobThatNoLongerWaitsIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId job = engine.submit_gpus(1);
  const PlanGroup group = group_of(engine, job, node, 1);
  engine.apply(CancelJob{.job = job});
  expect_dropped(group);
  PlanGroup unknown = group;
  unknown.job = JobId{404};
  expect_dropped(unknown);
}

TEST_F(CommitPlanTest, AJobThatBacksOffIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId job = engine.run({.gpus = 1, .retry = {.exit_code_retries = 1}});
  engine.ended(job, exited(1));
  engine.release_all();
  expect_dropped(group_of(engine, job, node, 1));
}

TEST_F(CommitPlanTest, TwoGroupsNeverShareADevice) {
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  const JobId first = engine.submit_gpus(2);
  const JobId second = engine.submit_gpus(2);
  commit({group_of(engine, first, node, 0b0011), group_of(engine, second, node, 0b0110)});
  EXPECT_EQ(engine.state_of(first), JobState::kScheduled);
  EXPECT_EQ(engine.state_of(second), JobState::kPending);
  EXPECT_EQ(engine.device(node, 1).held_by.job, first);
}

TEST_F(CommitPlanTest, TwoGroupsThatDoNotFitTogetherDoNotBothStart) {
  const NodeId node = engine.add_node("n1", {.gpus = 0, .cpu_milli = 3000});
  const JobId first = engine.submit({.cpu_milli = 2000});
  const JobId second = engine.submit({.cpu_milli = 2000});
  commit({group_of(engine, first, node, 0), group_of(engine, second, node, 0)});
  EXPECT_EQ(engine.state_of(first), JobState::kScheduled);
  EXPECT_EQ(engine.state_of(second), JobState::kPending);
}

TEST_F(CommitPlanTest, TheSameJobTwiceIsPlacedOnce) {
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  const JobId job = engine.submit_gpus(1);
  commit({group_of(engine, job, node, 0b01), group_of(engine, job, node, 0b10)});
  EXPECT_EQ(engine.job(job).attempt_count, 1u);
  EXPECT_EQ(engine.node(node).free_mask, 0b1110u);
}

TEST_F(CommitPlanTest, QuotaIsCheckedAgainWithWhatIsUsed) {
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  Limits limits;
  limits.set(Resource::kGpus, 3);
  const TenantId parent = engine.add_tenant("parent", {}, limits);
  const TenantId child = engine.add_tenant("child", parent);
  const JobId first = engine.submit({.gpus = 2, .tenant = child});
  const JobId second = engine.submit({.gpus = 2, .tenant = parent});
  commit({group_of(engine, first, node, 0b0011), group_of(engine, second, node, 0b1100)});
  EXPECT_EQ(engine.state_of(first), JobState::kScheduled);
  EXPECT_EQ(engine.state_of(second), JobState::kPending);
  EXPECT_EQ(engine.tenant(parent).usage.gpus, 2);
}

TEST_F(CommitPlanTest, ANodeThatIsNotReadyTakesNothing) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId with_gpu = engine.submit_gpus(1);
  const JobId without = engine.submit({.cpu_milli = 1});
  engine.apply(NodeLeaseLost{.node = node});
  expect_dropped(group_of(engine, with_gpu, node, 1));
  expect_dropped(group_of(engine, without, node, 0));
  PlanGroup nowhere = group_of(engine, without, node, 0);
  nowhere.members[0].node = NodeId{404};
  expect_dropped(nowhere);
}

TEST_F(CommitPlanTest, ADeviceThatIsNotFreeAndHealthyTakesNothing) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit_gpus(1);
  engine.apply(SetDeviceCondition{.node = node, .device = 0, .condition = DeviceCondition::kUnhealthy});
  expect_dropped(group_of(engine, job, node, 1));
}

TEST_F(CommitPlanTest, TheWrongNumberOfDevicesIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  const JobId job = engine.submit_gpus(2);
  expect_dropped(group_of(engine, job, node, 0b0001));
  expect_dropped(group_of(engine, job, node, 0b0111));
  PlanGroup short_generations = group_of(engine, job, node, 0b0011);
  short_generations.members[0].generations.pop_back();
  expect_dropped(short_generations);
}

TEST_F(CommitPlanTest, ADeviceThatTheNodeDoesNotHaveIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  PlanGroup group = group_of(engine, engine.submit_gpus(1), node, 1);
  group.members[0].device_mask = uint64_t{1} << 63;
  expect_dropped(group);
}

TEST_F(CommitPlanTest, TheWrongModelIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  expect_dropped(group_of(engine, engine.submit({.gpus = 1, .model = "H100"}), node, 1));
}

TEST_F(CommitPlanTest, TooLittleDeviceMemoryIsDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 1, .gpu_memory_mb = 1000});
  expect_dropped(group_of(engine, engine.submit({.gpus = 1, .gpu_memory_mb = 1001}), node, 1));
}

TEST_F(CommitPlanTest, DevicesOfTwoKindsAreDropped) {
  RegisterNode offer = registration_of("n1", {.gpus = 2});
  offer.devices[1].memory_mb += 1;
  const NodeId node{engine.apply(offer).first_id};
  expect_dropped(group_of(engine, engine.submit_gpus(2), node, 0b11));
}

TEST_F(CommitPlanTest, TooLittleCpuOrMemoryIsDropped) {
  const NodeId node = engine.add_node("n1", {.cpu_milli = 1000, .memory_mb = 1000});
  expect_dropped(group_of(engine, engine.submit({.cpu_milli = 1001}), node, 0));
  expect_dropped(group_of(engine, engine.submit({.memory_mb = 1001}), node, 0));
}

TEST_F(CommitPlanTest, TheWrongMembersAreDropped) {
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  const JobId job = engine.submit_gpus(1);
  PlanGroup none = group_of(engine, job, node, 1);
  none.members.clear();
  expect_dropped(none);
  PlanGroup two = group_of(engine, job, node, 1);
  two.members.push_back(group_of(engine, job, node, 2).members[0]);
  expect_dropped(two);
  PlanGroup other_part = group_of(engine, job, node, 1);
  other_part.members[0].part = 1;
  expect_dropped(other_part);
  PlanGroup additional = group_of(engine, job, node, 1);
  additional.members.push_back({.node = node, .part = 7});
  expect_dropped(additional);
}

TEST_F(CommitPlanTest, AFreedDeviceHasANewGenerationSoAnOlderPlanIsStale) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const PlanGroup old = group_of(engine, engine.submit_gpus(1), node, 1);
  engine.finish(engine.run({.gpus = 1, .priority = 1}));
  ASSERT_EQ(engine.node(node).free_mask, 1u);
  expect_dropped(old);
}

}  // namespace
}  // namespace gpusched
