#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class Reservations : public ::testing::Test {
 protected:
  /// Places what can be, and counts it as started at once.
  std::vector<JobId> cycle() {
    std::vector<JobId> started;
    for (const PlanGroup& group : engine.cycle()) {
      engine.apply(AttemptStarted{
          .job = group.job, .attempt = group.attempt, .node = group.members[0].node, .placed_at = {}});
      started.push_back(group.job);
    }
    return started;
  }
  void end(JobId id) {
    const Job& job = engine.job(id);
    const NodeId node = job.node;
    const uint64_t mask = job.device_mask;
    engine.apply(AttemptEnded{.job = id, .attempt = job.attempt_count, .node = node, .outcome = exited(0)});
    for (uint32_t device = 0; device < 64; ++device) {
      if (((mask >> device) & 1) == 0) continue;
      engine.apply(DeviceReleased{
          .node = node, .device = device, .generation = engine.node(node).devices[device].generation});
    }
  }
  const WaitReason& reason(JobId job) { return engine.planner().reason(engine.job(job).job_class); }

  TestEngine engine;
};

TEST_F(Reservations, DoNotCountOnAFaultyGpuThatItsHolderGivesBack) {
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId first = engine.submit({.gpus = 1, .max_runtime = hours(1)});
  ASSERT_EQ(cycle(), std::vector{first});
  const JobId second = engine.submit({.gpus = 1, .max_runtime = hours(2)});
  ASSERT_EQ(cycle(), std::vector{second});
  const auto device = static_cast<uint32_t>(std::countr_zero(engine.job(first).device_mask));
  engine.apply(NoteDeviceFault{
      .node = node, .device = device, .fault = FaultClass::kDrain, .code = "xid 79", .id = 1});
  const JobId waiting = engine.submit({.gpus = 1, .max_runtime = hours(1)});
  cycle();
  EXPECT_EQ(reason(waiting).start, engine.now() + hours(2)) << "the one that comes back first takes no work";
}

TEST_F(Reservations, KeepNothingForAJobWhoseDeadlineComesBefore) {
  engine.add_node("n1", {.gpus = 4});
  const JobId running = engine.submit({.gpus = 2, .max_runtime = hours(2)});
  ASSERT_EQ(cycle(), std::vector{running});
  const JobId hopeless = engine.submit({.gpus = 4, .flow = {{.deadline_after = hours(1)}}});
  cycle();
  EXPECT_FALSE(reason(hopeless).start.valid());
  const JobId longer = engine.submit({.gpus = 2, .max_runtime = hours(5)});
  EXPECT_EQ(cycle(), std::vector{longer});
}

// As many are tried at a time as fit into a slice; the next goes on behind them.
TEST_F(Reservations, AShortJobPassesHoweverManyStandBeforeIt) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.apply(MakeBooking{.name = "b", .nodes = {node}, .begin_after = hours(1), .length = hours(1)});
  for (int i = 0; i < 600; ++i) engine.submit({.gpus = 1, .max_runtime = hours(2)});
  const JobId shorter = engine.submit({.gpus = 1, .max_runtime = minutes(10)});
  int cycles = 0;
  for (; engine.state_of(shorter) == JobState::kPending && cycles < 10; ++cycles) {
    cycle();
    engine.advance(seconds(1));
  }
  EXPECT_EQ(cycles, 3);
}

TEST_F(Reservations, AShortJobPassesABlockedOneThatItDoesNotDelay) {
  engine.add_node("n1", {.gpus = 4});
  const JobId running = engine.submit({.gpus = 2, .max_runtime = hours(2)});
  ASSERT_EQ(cycle(), std::vector{running});
  const JobId large = engine.submit({.gpus = 4, .max_runtime = hours(1)});
  const JobId longer = engine.submit({.gpus = 1, .max_runtime = hours(3)});
  const JobId shorter = engine.submit({.gpus = 2, .max_runtime = hours(1)});
  EXPECT_EQ(cycle(), std::vector{shorter});
  EXPECT_EQ(reason(large).code, WaitCode::kGpusBusy);
  EXPECT_EQ(reason(large).start, engine.now() + hours(2));
  EXPECT_EQ(reason(longer).code, WaitCode::kReserved);
  EXPECT_EQ(reason(longer).reserved_for, large);
  engine.advance(hours(1));
  end(shorter);
  EXPECT_EQ(cycle(), std::vector<JobId>{});
  end(running);
  EXPECT_EQ(cycle(), std::vector{large});
}

TEST_F(Reservations, AShorterJobOfTheSameShapePassesALongerOneThatIsKeptBack) {
  engine.add_node("n1", {.gpus = 4});
  const JobId running = engine.submit({.gpus = 2, .max_runtime = hours(2)});
  ASSERT_EQ(cycle(), std::vector{running});
  engine.submit({.gpus = 4, .max_runtime = hours(1)});
  const JobId longer = engine.submit({.gpus = 1, .max_runtime = hours(3)});
  const JobId shorter = engine.submit({.gpus = 1, .max_runtime = hours(1)});
  EXPECT_EQ(cycle(), std::vector{shorter});
  EXPECT_EQ(reason(longer).code, WaitCode::kReserved);
  // Also one that comes later, and one when the other has ended.
  const JobId later = engine.submit({.gpus = 1, .max_runtime = minutes(90)});
  ASSERT_TRUE(engine.planner().wants_cycle());
  EXPECT_EQ(cycle(), std::vector{later});
  const JobId last = engine.submit({.gpus = 1, .max_runtime = minutes(30)});
  EXPECT_EQ(cycle(), std::vector<JobId>{});
  end(shorter);
  EXPECT_EQ(cycle(), std::vector{last});
  EXPECT_FALSE(engine.planner().wants_cycle());
}

TEST_F(Reservations, WhatIsLeftOverBesideTheReservationMayRunForLong) {
  engine.add_node("n1", {.gpus = 8});
  ASSERT_EQ(cycle().size() + 0u, 0u);
  const JobId running = engine.submit({.gpus = 4, .max_runtime = hours(2)});
  ASSERT_EQ(cycle(), std::vector{running});
  engine.submit({.gpus = 6, .max_runtime = hours(1)});
  const JobId beside = engine.submit({.gpus = 2, .max_runtime = hours(100)});
  const JobId too_much = engine.submit({.gpus = 1, .max_runtime = hours(100)});
  EXPECT_EQ(cycle(), std::vector{beside});
  EXPECT_EQ(reason(too_much).code, WaitCode::kReserved);
}

TEST_F(Reservations, ABetterNodeThatComesFreeTakesTheReservationOver) {
  engine.add_node("n1", {.gpus = 2});
  engine.add_node("n2", {.gpus = 2});
  const JobId soon = engine.submit({.gpus = 2, .max_runtime = hours(1)});
  const JobId late = engine.submit({.gpus = 1, .max_runtime = hours(5)});
  ASSERT_EQ(cycle().size(), 2u);
  const JobId large = engine.submit({.gpus = 2, .max_runtime = hours(1)});
  cycle();
  EXPECT_EQ(reason(large).start, engine.now() + hours(1));
  // It ends long before its limit, and the large job runs there.
  end(late);
  EXPECT_EQ(cycle(), std::vector{large});
  static_cast<void>(soon);
}

TEST_F(Reservations, WorkThatOverrunsPushesTheStartHonestly) {
  engine.add_node("n1", {.gpus = 2});
  const JobId endless = engine.submit({.gpus = 1});  // Expected to run for an hour.
  ASSERT_EQ(cycle(), std::vector{endless});
  const JobId large = engine.submit({.gpus = 2});
  cycle();
  const Time promised = reason(large).start;
  EXPECT_EQ(promised, engine.now() + hours(1));
  EXPECT_EQ(engine.planner().next_look(), promised);
  engine.advance(hours(1));
  engine.planner().look_at_promises(engine.now());
  ASSERT_TRUE(engine.planner().wants_cycle());
  cycle();
  EXPECT_GT(reason(large).start, promised);
  end(endless);
  EXPECT_EQ(cycle(), std::vector{large});
}

TEST_F(Reservations, ACancelledJobLetsGoOfWhatWasKeptForIt) {
  engine.add_node("n1", {.gpus = 2});
  const JobId running = engine.submit({.gpus = 1, .max_runtime = hours(1)});
  ASSERT_EQ(cycle(), std::vector{running});
  const JobId large = engine.submit({.gpus = 2});
  const JobId small = engine.submit({.gpus = 1, .max_runtime = hours(9)});
  EXPECT_EQ(cycle(), std::vector<JobId>{});
  engine.apply(CancelJob{.job = large});
  // A job refused for its sake is looked at again, in this cycle or the next.
  std::vector<JobId> started = cycle();
  if (started.empty() && engine.planner().wants_cycle()) started = cycle();
  EXPECT_EQ(started, std::vector{small});
}

TEST_F(Reservations, TwoAttemptsOfOneJobOnANodeAreCountedBoth) {
  const NodeId node = engine.add_node("n1", {.gpus = 3});
  const JobId twice = engine.submit({.gpus = 1, .retry = {.overlap_allowed = true}});
  ASSERT_EQ(cycle(), std::vector{twice});
  engine.apply(NodeLeaseLost{.node = node});
  engine.advance(hours(1));  // The node is lost, and the job goes on without its attempt.
  engine.apply(NodeLeaseBack{.node = node});
  ASSERT_EQ(cycle(), std::vector{twice});
  ASSERT_EQ(engine.node(node).attempts.size(), 2u);
  engine.apply(CancelJob{.job = twice});  // Both are being ended by now.
  const JobId large = engine.submit({.gpus = 3, .max_runtime = hours(1)});
  EXPECT_EQ(cycle(), std::vector<JobId>{});
  EXPECT_EQ(reason(large).code, WaitCode::kGpusBusy);
  EXPECT_GT(reason(large).start, engine.now());
}

TEST_F(Reservations, AMoreUrgentJobIsNotBoundByIt) {
  engine.add_node("n1", {.gpus = 2});
  const JobId running = engine.submit({.gpus = 1, .max_runtime = hours(1)});
  ASSERT_EQ(cycle(), std::vector{running});
  engine.submit({.gpus = 2});
  EXPECT_EQ(cycle(), std::vector<JobId>{});
  const JobId urgent = engine.submit({.gpus = 1, .priority = 500, .max_runtime = hours(9)});
  EXPECT_EQ(cycle(), std::vector{urgent});
}

/// Random work whose limits are its real run times.
class RandomReservations : public ::testing::TestWithParam<uint64_t> {};

// Once the first in line was promised a start it starts no later, whatever was started in its place.
TEST_P(RandomReservations, APromiseToTheFirstInLineIsKept) {
  TestEngine engine;
  engine.apply(Configure{.config = {.aging_per_hour = 0}});
  Prng prng(GetParam());
  for (int i = 0; i < 3; ++i) engine.add_node("n" + std::to_string(i), {.gpus = 4});
  struct Running {
    JobId job;
    Time end;
  };
  std::vector<Running> running;
  std::map<JobId, Time> promised;
  std::size_t backfilled = 0;
  std::size_t kept = 0;
  int to_submit = 300;
  while (to_submit > 0 || !running.empty() || !engine.state().line.empty()) {
    for (uint64_t more = prng.below(3); more > 0 && to_submit > 0; --more, --to_submit) {
      engine.submit({.gpus = static_cast<int32_t>(1 + prng.below(4)),
                     .max_runtime = minutes(static_cast<int64_t>(1 + prng.below(60)))});
    }
    while (engine.planner().wants_cycle()) {
      const JobId first = engine.state().line.empty() ? JobId{} : engine.state().line.front().job;
      for (const PlanGroup& group : engine.cycle()) {
        engine.apply(
            AttemptStarted{.job = group.job, .attempt = 1, .node = group.members[0].node, .placed_at = {}});
        running.push_back({.job = group.job, .end = engine.now() + engine.job(group.job).max_runtime});
        if (group.job > first) ++backfilled;
        const auto promise = promised.find(group.job);
        if (promise == promised.end()) continue;
        ASSERT_LE(engine.now(), promise->second) << "job " << group.job.value;
        ++kept;
      }
    }
    if (!engine.state().line.empty()) {
      const JobId first = engine.state().line.front().job;
      const Time start = engine.planner().reason(engine.job(first).job_class).start;
      if (start.valid()) promised.try_emplace(first, start);
    }
    Time next = engine.now() + minutes(static_cast<int64_t>(1 + prng.below(5)));
    for (const Running& each : running) next = std::min(next, each.end);
    engine.advance(next - engine.now());
    for (std::size_t i = 0; i < running.size();) {
      if (running[i].end > engine.now()) {
        ++i;
        continue;
      }
      const Job& job = engine.job(running[i].job);
      const NodeId node = job.node;
      const uint64_t mask = job.device_mask;
      engine.apply(AttemptEnded{.job = job.id, .attempt = 1, .node = node, .outcome = exited(0)});
      for (uint32_t device = 0; device < 4; ++device) {
        if (((mask >> device) & 1) == 0) continue;
        engine.apply(DeviceReleased{
            .node = node, .device = device, .generation = engine.node(node).devices[device].generation});
      }
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  EXPECT_GT(kept, 20u);
  EXPECT_GT(backfilled, 20u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomReservations, ::testing::Range<uint64_t>(0, 6));

}  // namespace
}  // namespace gpusched
