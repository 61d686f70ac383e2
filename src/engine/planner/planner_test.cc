#include "engine/planner/planner.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/limits.h"
#include "base/queue_limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(Planner, PlacesOnTheNodeOnWhichLeastStaysFree) {
  TestEngine engine;
  const NodeId big = engine.add_node("big", {.gpus = 8});
  const NodeId small = engine.add_node("small", {.gpus = 2});
  engine.submit_gpus(2);
  engine.submit_gpus(4);
  const std::vector<PlanGroup> placed = engine.cycle();
  ASSERT_EQ(placed.size(), 2u);
  EXPECT_EQ(placed[0].members[0].node, small);
  EXPECT_EQ(placed[1].members[0].node, big);
}

TEST(Planner, AJobWithoutGpusGoesWhereFewestGpusAreFree) {
  TestEngine engine;
  engine.add_node("gpus", {.gpus = 8});
  const NodeId plain = engine.add_node("plain", {});
  engine.submit({.cpu_milli = 1000});
  EXPECT_EQ(engine.cycle().at(0).members[0].node, plain);
}

TEST(Planner, HigherPriorityGoesFirst) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.submit({.gpus = 1, .priority = 1});
  const JobId high = engine.submit({.gpus = 1, .priority = 2});
  const std::vector<PlanGroup> placed = engine.cycle();
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].job, high);
}

TEST(Planner, OfEqualPriorityTheOlderGoesFirstOverAllClasses) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId first = engine.submit({.gpus = 1, .cpu_milli = 7});
  engine.submit({.gpus = 1});
  const std::vector<PlanGroup> placed = engine.cycle();
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].job, first);
}

TEST(Planner, WaitingEarnsPriority) {
  TestEngine engine;
  const JobId old = engine.submit({.gpus = 1, .priority = 0});
  engine.advance(hours(2));
  engine.submit({.gpus = 1, .priority = 15});
  engine.add_node("n1", {.gpus = 1});
  EXPECT_EQ(engine.cycle().at(0).job, old);
}

TEST(Planner, ATenantsTierAddsToPriority) {
  TestEngine engine;
  const TenantId tenant{engine.apply(CreateTenant{.name = "t", .priority_tier = 501}).first_id};
  engine.add_node("n1", {.gpus = 1});
  engine.submit({.gpus = 1});
  const JobId job = engine.submit({.gpus = 1, .tenant = tenant});
  EXPECT_EQ(engine.cycle().at(0).job, job);
}

TEST(Planner, ASmallerJobPassesABlockedLargerOne) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  const JobId large = engine.submit_gpus(4);
  const JobId small = engine.submit_gpus(2);
  EXPECT_EQ(engine.cycle().at(0).job, small);
  EXPECT_EQ(engine.state_of(large), JobState::kPending);
}

TEST(Planner, DevicesOfTwoKindsAreNeverMixed) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", {.gpus = 4});
  offer.devices[0].model = offer.devices[1].model = "H100";
  engine.apply(offer);
  const JobId three = engine.submit_gpus(3);
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.wait_code(three), WaitCode::kNoMatchingGpu);
  engine.submit({.gpus = 2, .model = "A100"});
  EXPECT_EQ(engine.cycle().at(0).members[0].device_mask, 0b1100u);
}

TEST(Planner, AModelsWordsAndMemoryChooseTheDevices) {
  TestEngine engine;
  engine.add_node("small", {.gpus = 1, .model = "NVIDIA A100-PCIE-40GB", .gpu_memory_mb = 40'000});
  const NodeId large = engine.add_node("large", {.gpus = 8, .model = "NVIDIA A100-SXM4-80GB"});
  engine.submit({.gpus = 1, .model = "a100", .gpu_memory_mb = 50'000});
  EXPECT_EQ(engine.cycle().at(0).members[0].node, large);
  engine.submit({.gpus = 1, .model = "a100 sxm4"});
  EXPECT_EQ(engine.cycle().at(0).members[0].node, large);
}

TEST(WaitReason, NoNodeAtAll) {
  TestEngine engine;
  const JobId job = engine.submit_gpus(1);
  engine.cycle();
  EXPECT_EQ(engine.wait_code(job), WaitCode::kNoNode);
}

TEST(WaitReason, QueuedUntilACycleLooked) {
  TestEngine engine;
  EXPECT_EQ(engine.wait_code(engine.submit_gpus(1)), WaitCode::kQueued);
}

class WaitReasonOnANode : public ::testing::Test {
 protected:
  WaitReasonOnANode() : node(engine.add_node("n1", {.gpus = 4, .cpu_milli = 8000, .memory_mb = 1000})) {}
  WaitCode code_of(const Want& want) {
    const JobId job = engine.submit(want);
    engine.cycle();
    EXPECT_EQ(engine.state_of(job), JobState::kPending);
    const WaitReason& reason = engine.planner().reason(engine.job(job).job_class);
    EXPECT_FALSE(describe(reason).empty());
    EXPECT_FALSE(lifted_by(reason).empty());
    return reason.code;
  }
  TestEngine engine;
  NodeId node;
};

TEST_F(WaitReasonOnANode, NoSuchDevice) {
  EXPECT_EQ(code_of({.gpus = 5}), WaitCode::kNoMatchingGpu);
  EXPECT_EQ(code_of({.gpus = 100'000}), WaitCode::kNoMatchingGpu);
  EXPECT_EQ(code_of({.gpus = 1, .model = "H100"}), WaitCode::kNoMatchingGpu);
  EXPECT_EQ(code_of({.gpus = 1, .gpu_memory_mb = 100'000}), WaitCode::kNoMatchingGpu);
}

TEST_F(WaitReasonOnANode, TooLarge) {
  EXPECT_EQ(code_of({.cpu_milli = 8001}), WaitCode::kTooLarge);
  EXPECT_EQ(code_of({.gpus = 1, .memory_mb = 1001}), WaitCode::kTooLarge);
}

TEST_F(WaitReasonOnANode, NodesAway) {
  engine.apply(NodeLeaseLost{.node = node});
  EXPECT_EQ(code_of({.gpus = 1}), WaitCode::kNodesUnreachable);
  EXPECT_EQ(code_of({.cpu_milli = 1}), WaitCode::kNodesUnreachable);
}

TEST_F(WaitReasonOnANode, DevicesUnfit) {
  engine.apply(SetDeviceCondition{.node = node, .device = 0, .condition = DeviceCondition::kUnhealthy});
  EXPECT_EQ(code_of({.gpus = 4}), WaitCode::kGpusUnhealthy);
}

TEST_F(WaitReasonOnANode, GpusBusyWithTheMostThatAreFree) {
  engine.run({.gpus = 1});
  EXPECT_EQ(code_of({.gpus = 4}), WaitCode::kGpusBusy);
  const JobId job = engine.submit_gpus(4);
  EXPECT_EQ(engine.planner().reason(engine.job(job).job_class).gpus_free_max, 3);
  EXPECT_EQ(engine.planner().reason(engine.job(job).job_class).nodes_fitting, 1);
}

TEST_F(WaitReasonOnANode, GpusBusyWhileTheyDrain) {
  engine.ended(engine.run({.gpus = 4}));
  EXPECT_EQ(code_of({.gpus = 1}), WaitCode::kGpusBusy);
}

TEST_F(WaitReasonOnANode, CpuBusy) {
  engine.run({.cpu_milli = 8000});
  EXPECT_EQ(code_of({.cpu_milli = 1}), WaitCode::kCpuBusy);
}

TEST_F(WaitReasonOnANode, MemoryBusy) {
  engine.run({.memory_mb = 1000});
  EXPECT_EQ(code_of({.memory_mb = 1}), WaitCode::kMemoryBusy);
}

TEST_F(WaitReasonOnANode, NodeFull) {
  for (uint32_t i = 0; i < limits::kAttemptsPerNodeMax; ++i) engine.submit({});
  engine.cycle();
  EXPECT_EQ(code_of({}), WaitCode::kNodeFull);
}

TEST_F(WaitReasonOnANode, QuotaNamesWhoseLimitAndHowMuchIsUsed) {
  Limits limits;
  limits.set(Resource::kGpus, 3);
  const TenantId parent = engine.add_tenant("parent", {}, limits);
  const TenantId child = engine.add_tenant("child", parent);
  engine.run({.gpus = 2, .tenant = parent});
  EXPECT_EQ(code_of({.gpus = 2, .tenant = child}), WaitCode::kQuota);
  const WaitReason& reason =
      engine.planner().reason(engine.job(JobId{engine.state().line.front().job}).job_class);
  EXPECT_EQ(reason.tenant, parent);
  EXPECT_EQ(reason.resource, Resource::kGpus);
  EXPECT_EQ(reason.limit, 3);
  EXPECT_EQ(reason.current, 2);
}

TEST_F(WaitReasonOnANode, ChangesAreReportedOnce) {
  const JobId job = engine.submit_gpus(5);
  engine.cycle();
  const uint32_t job_class = engine.job(job).job_class;
  EXPECT_EQ(engine.planner().take_changed_reasons(), std::vector<uint32_t>{job_class});
  engine.cycle();
  EXPECT_TRUE(engine.planner().take_changed_reasons().empty());
}

TEST_F(WaitReasonOnANode, ABusyDeviceThatBreaksChangesTheReason) {
  engine.run({.gpus = 4});
  const JobId job = engine.submit_gpus(4);
  engine.cycle();
  ASSERT_EQ(engine.wait_code(job), WaitCode::kGpusBusy);
  engine.apply(SetDeviceCondition{.node = node, .device = 0, .condition = DeviceCondition::kMissing});
  engine.cycle();
  EXPECT_EQ(engine.wait_code(job), WaitCode::kGpusUnhealthy);
}

/// A job of 2 GPUs waits, whatever for; then something happens and the next cycle places it.
class Unblock : public ::testing::Test {
 protected:
  void expect_lifted_by(const std::function<void()>& what) {
    const JobId job = engine.submit(want);
    engine.cycle();
    ASSERT_EQ(engine.state_of(job), JobState::kPending);
    ASSERT_FALSE(engine.planner().wants_cycle());
    what();
    EXPECT_TRUE(engine.planner().wants_cycle());
    engine.cycle();
    EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
  }
  TestEngine engine;
  Want want{.gpus = 2};
};

TEST_F(Unblock, ByAFirstNode) {
  expect_lifted_by([&] { engine.add_node("n1", {.gpus = 2}); });
}

TEST_F(Unblock, ByANodeOfTheRightModel) {
  engine.add_node("n1", {.gpus = 2});
  want.model = "H100";
  expect_lifted_by([&] { engine.add_node("n2", {.gpus = 2, .model = "NVIDIA H100"}); });
}

TEST_F(Unblock, ByReleasedDevices) {
  engine.add_node("n1", {.gpus = 2});
  const JobId running = engine.run({.gpus = 2});
  expect_lifted_by([&] { engine.finish(running); });
}

TEST_F(Unblock, ByTheEndOfAJobThatHeldCpu) {
  engine.add_node("n1", {.gpus = 2, .cpu_milli = 1000});
  const JobId running = engine.run({.cpu_milli = 1000});
  want.cpu_milli = 500;
  expect_lifted_by([&] { engine.ended(running); });
}

TEST_F(Unblock, ByTheEndOfAJobThatHeldMemory) {
  engine.add_node("n1", {.gpus = 2, .memory_mb = 1000});
  const JobId running = engine.run({.memory_mb = 1000});
  want.memory_mb = 1;
  expect_lifted_by([&] { engine.ended(running); });
}

TEST_F(Unblock, ByANodeThatIsBack) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  engine.apply(NodeLeaseLost{.node = node});
  expect_lifted_by([&] { engine.apply(NodeLeaseBack{.node = node}); });
}

TEST_F(Unblock, ByANodeThatRestarted) {
  engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 2, .retry = {.system_retries = -1}});
  expect_lifted_by([&] { engine.apply(registration_of("n1", {.gpus = 2}, "boot-2")); });
}

TEST_F(Unblock, ByADeviceThatIsHealthyAgain) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  engine.apply(SetDeviceCondition{.node = node, .device = 1, .condition = DeviceCondition::kUnhealthy});
  expect_lifted_by([&] {
    engine.apply(SetDeviceCondition{.node = node, .device = 1, .condition = DeviceCondition::kOk});
  });
}

TEST_F(Unblock, ByAnOperatorWhoLiftsAQuarantine) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  engine.ended(engine.run({.gpus = 2}));
  engine.advance(engine.state().config.drain_limit);
  engine.apply(DeviceStillBusy{.node = node, .device = 0, .evidence = "pid"});
  engine.released(node, 1);
  expect_lifted_by([&] { engine.apply(SetDeviceCondition{.node = node, .device = 0, .by_operator = true}); });
}

TEST_F(Unblock, ByAHigherQuota) {
  engine.add_node("n1", {.gpus = 4});
  Limits limits;
  limits.set(Resource::kGpus, 2);
  want.tenant = engine.add_tenant("t", {}, limits);
  engine.run(want);
  expect_lifted_by([&] {
    limits.set(Resource::kGpus, 4);
    engine.apply(UpdateTenant{.tenant = want.tenant, .given = kTenantMaxGpus, .limits = limits});
  });
}

TEST_F(Unblock, ByTheParentsHigherQuota) {
  engine.add_node("n1", {.gpus = 4});
  Limits limits;
  limits.set(Resource::kJobs, 1);
  const TenantId parent = engine.add_tenant("parent", {}, limits);
  want.tenant = engine.add_tenant("child", parent);
  engine.run(want);
  expect_lifted_by(
      [&] { engine.apply(UpdateTenant{.tenant = parent, .given = kTenantMaxJobs, .limits = {}}); });
}

TEST_F(Unblock, ByTheEndOfASiblingsJob) {
  engine.add_node("n1", {.gpus = 4});
  Limits limits;
  limits.set(Resource::kGpus, 2);
  const TenantId parent = engine.add_tenant("parent", {}, limits);
  const TenantId sibling = engine.add_tenant("sibling", parent);
  want.tenant = engine.add_tenant("child", parent);
  const JobId running = engine.run({.gpus = 2, .tenant = sibling});
  expect_lifted_by([&] { engine.ended(running); });
}

TEST_F(Unblock, ByAJobThatLeftALostNodeBehind) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  Limits limits;
  limits.set(Resource::kJobs, 1);
  want.tenant = engine.add_tenant("t", {}, limits);
  Want overlapping = want;
  overlapping.retry = {.system_retries = -1, .overlap_allowed = true};
  engine.run(overlapping);
  engine.add_node("n2", {.gpus = 2});
  engine.apply(NodeLeaseLost{.node = node});
  expect_lifted_by([&] { engine.advance(engine.state().config.lost_after); });
}

TEST_F(Unblock, ByADeviceThatHasCooled) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  engine.apply(NoteDeviceHeat{.node = node, .device = 1, .hot = true, .detail = "82 C"});
  expect_lifted_by([&] { engine.apply(NoteDeviceHeat{.node = node, .device = 1}); });
}

TEST_F(Unblock, ByAnAbandonedAttemptsEnd) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 2, .retry = {.system_retries = -1, .overlap_allowed = true}});
  engine.apply(NodeLeaseLost{.node = node});
  engine.advance(engine.state().config.lost_after);
  engine.apply(NodeLeaseBack{.node = node});
  const JobId abandoned = engine.state().attempts.begin()->second.job;
  expect_lifted_by([&] {
    engine.apply(AttemptEnded{.job = abandoned, .attempt = 1, .node = node, .outcome = exited(0)});
    engine.release_all();
  });
}

TEST(PlanApplied, WhatWasDroppedAsStaleIsPlannedAgain) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit_gpus(1);
  Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  ASSERT_EQ(slice.plan.groups.size(), 1u);
  engine.apply(SetDeviceCondition{.node = node, .condition = DeviceCondition::kUnhealthy});
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  engine.cycle();
  EXPECT_EQ(engine.wait_code(job), WaitCode::kGpusUnhealthy);
  engine.apply(SetDeviceCondition{.node = node, .condition = DeviceCondition::kOk});
  EXPECT_EQ(engine.cycle().at(0).job, job);
}

TEST(PlanApplied, APlanThatWasNeverDecidedIsPlannedAgain) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit_gpus(1);
  ASSERT_EQ(engine.planner().plan(engine.state(), engine.now()).plan.groups.size(), 1u);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.cycle().at(0).job, job);
}

TEST(PlanApplied, DevicesOfADroppedPlacementServeTheClassThatTheyBlocked) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId first = engine.submit({.gpus = 1, .priority = 1});
  const JobId second = engine.submit({.gpus = 1, .cpu_milli = 1});
  const Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  ASSERT_EQ(slice.plan.groups.size(), 1u);
  ASSERT_EQ(engine.wait_code(second), WaitCode::kGpusBusy);
  engine.apply(CancelJob{.job = first});
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.state_of(second), JobState::kScheduled);
}

TEST(PlanApplied, QuotaOfADroppedPlacementServesTheClassThatItBlocked) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 4});
  Limits limits;
  limits.set(Resource::kJobs, 1);
  const TenantId tenant = engine.add_tenant("t", {}, limits);
  const JobId first = engine.submit({.gpus = 1, .priority = 1, .tenant = tenant});
  const JobId second = engine.submit({.gpus = 1, .cpu_milli = 1, .tenant = tenant});
  const Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  ASSERT_EQ(slice.plan.groups.size(), 1u);
  ASSERT_EQ(engine.wait_code(second), WaitCode::kQuota);
  engine.apply(CancelJob{.job = first});
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.cycle().size(), 1u);
  EXPECT_EQ(engine.state_of(second), JobState::kScheduled);
}

TEST(PlanApplied, AJobSubmittedMeanwhileIsNotLost) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  engine.submit_gpus(1);
  const Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  const JobId later = engine.submit({.gpus = 1, .priority = 5});
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.cycle().at(0).job, later);
}

TEST(Slices, OneHoldsABoundedNumberOfPlacementsAndSaysThereIsMore) {
  TestEngine engine;
  engine.add_node("n1", {});
  for (uint32_t i = 0; i < limits::kPlacementsPerSlice + 1; ++i) engine.submit({});
  const Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  EXPECT_EQ(slice.plan.groups.size(), limits::kPlacementsPerSlice);
  EXPECT_TRUE(slice.more);
  EXPECT_EQ(slice.plan.based_on, engine.state().last.sequence);
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  const Planner::Slice rest = engine.planner().plan(engine.state(), engine.now());
  EXPECT_EQ(rest.plan.groups.size(), 1u);
  EXPECT_FALSE(rest.more);
}

TEST(Slices, OneHoldsABoundedNumberOfMembers) {
  constexpr int kMembers = 1'500;
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  for (int i = 0; i < kMembers; ++i) engine.add_node("n" + std::to_string(i), {.cpu_milli = 64'000});
  for (int i = 0; i < 5; ++i) engine.submit({.cpu_milli = 1'000, .members = kMembers});
  const Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  EXPECT_EQ(slice.plan.groups.size(), 3u);  // The first two have fewer than limits::kMembersPerSlice.
  EXPECT_TRUE(slice.more);
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.planner().plan(engine.state(), engine.now()).plan.groups.size(), 2u);
}

TEST(Slices, WithinOneNoDeviceIsGivenTwiceAndNoQuotaOverdrawn) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 4});
  Limits limits;
  limits.set(Resource::kGpus, 3);
  const TenantId tenant = engine.add_tenant("t", {}, limits);
  for (int i = 0; i < 4; ++i) engine.submit({.gpus = 1, .tenant = tenant});
  const std::vector<PlanGroup> placed = engine.cycle();
  ASSERT_EQ(placed.size(), 3u);
  uint64_t used = 0;
  for (const PlanGroup& group : placed) {
    EXPECT_EQ(used & group.members[0].device_mask, 0u);
    used |= group.members[0].device_mask;
  }
  EXPECT_EQ(engine.tenant(tenant).usage.gpus, 3);
}

TEST(Reset, ForgetsWhatThePlannerKnewOfAnotherState) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  for (int i = 0; i < 5; ++i) engine.submit({.gpus = 2, .cpu_milli = i});
  engine.cycle();
  engine.submit_gpus(1);
  ASSERT_EQ(engine.planner().plan(engine.state(), engine.now()).plan.groups.size(), 1u);
  const State other;
  engine.planner().reset(other);
  EXPECT_TRUE(engine.planner().take_changed_reasons().empty());
  EXPECT_FALSE(engine.planner().wants_cycle());
  EXPECT_TRUE(engine.planner().plan(other, engine.now()).plan.groups.empty());
}

}  // namespace
}  // namespace gpusched
