// The order of tasks of users, and where they go (docs/policies.md, "Tasks of agents").
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"

namespace gpusched {
namespace {

using testing::policies_with_tasks;
using testing::TestEngine;

struct Task {
  std::string user;
  int64_t cost = 1;
  int64_t weight_milli = 1'000;
  int32_t milli = 600;  ///< One at a time on a GPU.
  int64_t memory_mb = 1'000;
  TenantId tenant = kDefaultTenant;
  Duration max_runtime = {};
};

JobId submit(TestEngine& engine, const Task& task) {
  JobRequest request = testing::request_of({.gpus = 1,
                                            .tenant = task.tenant,
                                            .max_runtime = task.max_runtime,
                                            .gpu_milli = task.milli,
                                            .gpu_share_mb = task.memory_mb});
  request.spec = testing::task_spec(task.user, task.cost, task.weight_milli);
  const Applied applied = engine.apply(SubmitJobs{.tenant = task.tenant, .jobs = {request}});
  EXPECT_FALSE(applied.rejection.has_value());
  return JobId{applied.first_id};
}

/// The jobs in the order in which one GPU runs them, each for a moment; the first may be running.
std::vector<JobId> run_all(TestEngine& engine, Duration each = milliseconds(1)) {
  std::vector<JobId> order;
  for (int round = 0; round < 1'000; ++round) {
    const std::vector<PlanGroup> placed = engine.cycle();
    if (placed.empty()) break;
    for (const PlanGroup& group : placed) order.push_back(group.job);
    engine.advance(each);
    for (const PlanGroup& group : placed) {
      engine.started(group.job);
      engine.finish(group.job);
    }
  }
  return order;
}

TEST(TaskOrder, ADelayIsWhatTheScoreLacks) {
  const policy::TaskOrder order{.reader = nullptr};
  EXPECT_EQ(order.delay_max(), seconds(10));
  EXPECT_EQ(order.delay_of({.user = "a"}, 0), Duration{});
  EXPECT_EQ(order.delay_of({.user = "a"}, 1'000), seconds(5));
  EXPECT_EQ(order.delay_of({.user = "a", .cost_milli = 5'000}, 0), seconds(8));
  EXPECT_EQ(order.delay_of({.user = "a", .cost_milli = 1'250}, 0), seconds(2));
  EXPECT_EQ(order.delay_of({.user = "a", .cost_milli = 1'000, .weight_milli = 500}, 0), seconds(5));
  EXPECT_LE(order.delay_of({.user = "a"}, 1'000'000'000), seconds(10));
}

TEST(TaskOrder, WhoUsedLessGoesFirst) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 1});
  for (int i = 0; i < 3; ++i) submit(engine, {.user = "heavy"});
  EXPECT_EQ(run_all(engine).size(), 3u);
  const JobId heavy = submit(engine, {.user = "heavy"});
  const JobId light = submit(engine, {.user = "light"});
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{light, heavy}));
}

TEST(TaskOrder, UseIsForgottenWithTheWindow) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 1});
  for (int i = 0; i < 3; ++i) submit(engine, {.user = "heavy"});
  EXPECT_EQ(run_all(engine).size(), 3u);
  engine.advance(minutes(5) + seconds(5));
  const JobId heavy = submit(engine, {.user = "heavy"});
  const JobId light = submit(engine, {.user = "light"});
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{heavy, light}));
}

TEST(TaskOrder, WithinOnePlanUsersTakeTurns) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 4});
  std::vector<JobId> heavy;
  for (int i = 0; i < 8; ++i) heavy.push_back(submit(engine, {.user = "heavy"}));
  const JobId light = submit(engine, {.user = "light"});
  const JobId second = submit(engine, {.user = "light", .memory_mb = 2'000});  // Its class is another.
  std::vector<JobId> placed;
  for (const PlanGroup& group : engine.cycle()) placed.push_back(group.job);
  EXPECT_EQ(placed, (std::vector<JobId>{heavy[0], light, heavy[1], second}));
}

TEST(TaskOrder, CheapTasksAndLargeWeightsGoFirst) {
  TestEngine engine(policies_with_tasks(4'000));
  engine.add_node("n1", {.gpus = 1});
  const JobId dear = submit(engine, {.user = "a", .cost = 10});
  const JobId cheap = submit(engine, {.user = "b", .cost = 1});
  const JobId weighty = submit(engine, {.user = "c", .cost = 2, .weight_milli = 4'000});
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{weighty, cheap, dear}));
}

TEST(TaskOrder, NobodyIsOvertakenForLongerThanTheLargestDelay) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 1});
  for (int i = 0; i < 20; ++i) submit(engine, {.user = "heavy"});
  EXPECT_EQ(run_all(engine).size(), 20u);
  const JobId running = submit(engine, {.user = "other"});
  engine.cycle();
  engine.started(running);
  const JobId heavy = submit(engine, {.user = "heavy", .cost = 10});
  engine.advance(seconds(9));
  const JobId within = submit(engine, {.user = "new"});
  engine.advance(seconds(2));
  const JobId later = submit(engine, {.user = "newer"});
  engine.finish(running);
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{within, heavy, later}));
}

TEST(TaskOrder, OtherJobsAndOtherTenantsAreNotOrderedByIt) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 1});
  const TenantId other = engine.add_tenant("other");
  for (int i = 0; i < 3; ++i) submit(engine, {.user = "heavy"});
  EXPECT_EQ(run_all(engine).size(), 3u);
  // One of the same class as a task; and one of a user of that name elsewhere.
  const JobId plain = engine.submit({.gpus = 1, .gpu_milli = 600, .gpu_share_mb = 1'000});
  const JobId task = submit(engine, {.user = "heavy"});
  const JobId namesake = submit(engine, {.user = "heavy", .tenant = other});
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{plain, namesake, task}));
}

/// Two members, each with a share of a GPU.
JobId submit_gang(TestEngine& engine, const std::string& user) {
  JobRequest request =
      testing::request_of({.gpus = 1, .gpu_milli = 600, .gpu_share_mb = 1'000, .members = 2});
  request.spec = testing::task_spec(user);
  const Applied applied = engine.apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request}});
  EXPECT_FALSE(applied.rejection.has_value()) << describe(*applied.rejection);
  return JobId{applied.first_id};
}

TEST(TaskOrder, AGangOfSharesIsNoTask) {
  TestEngine engine(policies_with_tasks());
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  engine.add_node("n1", {.gpus = 2});
  for (int i = 0; i < 3; ++i) submit(engine, {.user = "heavy"});
  EXPECT_EQ(run_all(engine).size(), 3u);
  const JobId heavy = submit_gang(engine, "heavy");
  const JobId light = submit_gang(engine, "light");
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{heavy, light}));
}

TEST(TaskOrder, WhatGangsUseCountsForNoUser) {
  TestEngine engine(policies_with_tasks());
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  engine.add_node("n1", {.gpus = 2});
  for (int i = 0; i < 3; ++i) submit_gang(engine, "a");
  EXPECT_EQ(run_all(engine).size(), 3u);
  engine.run({.gpus = 1});
  const JobId running = engine.run({.gpus = 1});
  const JobId first = submit(engine, {.user = "a"});
  const JobId second = submit(engine, {.user = "b"});
  engine.finish(running);
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{first, second}));
}

TEST(TaskOrder, WithAnotherOrderOfJobsThatOneDecides) {
  policy::PolicySet policies = policies_with_tasks();
  policies.job_order = policy::make_job_order("deadline", {});
  TestEngine engine(policies);
  engine.add_node("n1", {.gpus = 1});
  const JobId dear = submit(engine, {.user = "a", .cost = 10});
  const JobId cheap = submit(engine, {.user = "b"});
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{dear, cheap}));
}

TEST(TaskOrder, WhatAPlanDroppedWaitsInItsPlaceAgain) {
  TestEngine engine(policies_with_tasks());
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId first = submit(engine, {.user = "a"});
  const JobId second = submit(engine, {.user = "b"});
  const JobId third = submit(engine, {.user = "a"});
  const Planner::Slice slice = engine.planner().plan(engine.state(), engine.now());
  ASSERT_EQ(slice.plan.groups.size(), 2u);
  // Meanwhile the node is gone, and the plan is stale.
  engine.apply(SetNodeAvailability{.node = node, .to = Availability::kDraining});
  engine.apply(slice.plan);
  engine.planner().plan_applied(engine.state());
  EXPECT_EQ(engine.state_of(first), JobState::kPending);
  engine.add_node("n2", {.gpus = 1});
  EXPECT_EQ(run_all(engine), (std::vector<JobId>{first, second, third}));
}

TEST(TaskOrder, WhereAllHavePassedAReservationNobodyIsLookedAtAgain) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 1, .max_runtime = hours(1)});
  engine.submit({.gpus = 2, .max_runtime = hours(1)});
  const JobId longer = submit(engine, {.user = "a", .milli = 10, .memory_mb = 100, .max_runtime = hours(10)});
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.wait_code(longer), WaitCode::kReserved);
  for (uint32_t i = 0; i < limits::kPassTriesMax; ++i)
    submit(engine, {.user = "a", .milli = 10, .memory_mb = 100, .max_runtime = minutes(1)});
  engine.apply(CancelJob{.job = longer});
  EXPECT_EQ(engine.cycle().size(), limits::kPassTriesMax);
  engine.advance(seconds(2));
  EXPECT_TRUE(engine.cycle().empty());
}

/// Counts what it reads.
class CountingReader final : public policy::TaskReader {
 public:
  std::optional<policy::TaskFacts> read(std::string_view spec) const override {
    ++reads;
    return reader_.read(spec);
  }
  mutable uint32_t reads = 0;

 private:
  testing::TestTaskReader reader_;
};

TEST(TaskOrder, AResetReadsABoundedNumberOfSpecificationsInSearchOfTasks) {
  const auto reader = std::make_shared<CountingReader>();
  policy::PolicySet policies = policies_with_tasks();
  policies.tasks = std::make_shared<policy::TaskOrder>(policy::TaskOrder{.reader = reader});
  TestEngine engine(policies);
  engine.add_node("n1", {.gpus = 1});
  for (int i = 0; i < 3; ++i) submit(engine, {.user = "heavy", .memory_mb = 500});
  EXPECT_EQ(run_all(engine).size(), 3u);
  // More shares of GPUs than that, none of them a task, and behind them tasks of another class.
  SubmitJobs many{.tenant = kDefaultTenant, .jobs = {}};
  many.jobs.assign(1'000, testing::request_of({.gpus = 1, .gpu_milli = 600, .gpu_share_mb = 1'000}));
  for (uint32_t sent = 0; sent <= TaskLines::kResetReadsMax; sent += 1'000) engine.apply(many);
  const JobId heavy = submit(engine, {.user = "heavy", .memory_mb = 2'000});
  const JobId light = submit(engine, {.user = "light", .memory_mb = 2'000});
  const JobClass& kind = engine.state().class_of(engine.job(heavy));
  TaskLines lines;
  reader->reads = 0;
  lines.reset(engine.state(), policies.tasks, engine.now());
  EXPECT_EQ(reader->reads, TaskLines::kResetReadsMax + 3);  // The 3 were placed of late.
  EXPECT_FALSE(lines.has(engine.job(heavy).job_class));
  // The next task that comes lets all of its class stand in order.
  const JobId next = submit(engine, {.user = "light", .memory_mb = 2'000});
  lines.observe(engine.state(), next);
  ASSERT_TRUE(lines.has(engine.job(heavy).job_class));
  EXPECT_EQ(kind.waiting.size(), 3u);
  EXPECT_EQ(lines.first(engine.state(), engine.job(heavy).job_class)->job, light);
  EXPECT_TRUE(lines.key_of(heavy).has_value());
}

/// By the contract's words, in floating point.
JobId next_by_contract(const std::map<JobId, Task>& waiting, const State& state,
                       const std::map<std::string, int64_t>& used) {
  JobId best;
  double highest = -1;
  for (const auto& [id, task] : waiting) {
    const auto use = used.find(task.user);
    const double spent = static_cast<double>((use == used.end() ? 0 : use->second) + task.cost);
    const double waited = static_cast<double>((state.last.at - state.job_at(id).submitted_at).ns) * 1e-9;
    const double score = static_cast<double>(task.weight_milli) / 1'000 / spent + 0.1 * waited;
    if (score > highest + 1e-4) best = id, highest = score;
  }
  return best;
}

/// Without ties, which both may break as they like.
TEST(TaskOrder, IsTheContractsForManyUsers) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Prng prng(seed);
    TestEngine engine(policies_with_tasks(3'000));
    engine.add_node("n1", {.gpus = 1});
    std::map<JobId, Task> waiting;
    std::map<std::string, int64_t> used;
    for (int round = 0; round < 120; ++round) {
      for (uint64_t fresh = prng.below(3); fresh > 0; --fresh) {
        const uint64_t user = prng.below(5);
        constexpr int64_t kCosts[] = {1, 5, 10};
        const Task task{.user = "u" + std::to_string(user),
                        .cost = kCosts[prng.below(3)],
                        .weight_milli = 500 + 613 * static_cast<int64_t>(user),
                        .memory_mb = 1'000 + 1'000 * static_cast<int64_t>(prng.below(3))};
        waiting.emplace(submit(engine, task), task);
        engine.advance(milliseconds(137 + static_cast<int64_t>(prng.below(1'000))));
      }
      const JobId expected = next_by_contract(waiting, engine.state(), used);
      Planner fresh(policies_with_tasks(3'000));
      fresh.reset(engine.state());
      const Planner::Slice theirs = fresh.plan(engine.state(), engine.now());
      const std::vector<PlanGroup> placed = engine.cycle();
      ASSERT_EQ(placed.size(), waiting.empty() ? 0u : 1u);
      if (placed.empty()) continue;
      ASSERT_EQ(placed.front().job, expected) << "seed " << seed << ", round " << round;
      ASSERT_EQ(theirs.plan.groups.front().job, expected) << "a planner that begins here";
      used[waiting.at(expected).user] += waiting.at(expected).cost;
      waiting.erase(expected);
      engine.started(expected);
      engine.finish(expected);
    }
    EXPECT_GT(used.size(), 3u);
  }
}

uint32_t device_of(const TestEngine& engine, JobId id) {
  EXPECT_EQ(engine.state_of(id), JobState::kScheduled);
  return static_cast<uint32_t>(std::countr_zero(engine.job(id).device_mask));
}

TEST(TaskPacking, ATaskGoesWhereItsMemoryFitsBest) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 3, .gpu_memory_mb = 80'000});
  // By compute the second would be the tighter one, by memory the first is.
  const JobId much = submit(engine, {.user = "a", .milli = 100, .memory_mb = 50'000});
  engine.cycle();
  const JobId little = engine.submit({.gpus = 1, .gpu_milli = 950, .gpu_share_mb = 40'000});
  engine.cycle();
  EXPECT_NE(device_of(engine, much), device_of(engine, little));
  const JobId task = submit(engine, {.user = "a", .milli = 50, .memory_mb = 10'000});
  engine.cycle();
  EXPECT_EQ(device_of(engine, task), device_of(engine, much));
  // Any other share goes by compute.
  const JobId share = engine.submit({.gpus = 1, .gpu_milli = 50, .gpu_share_mb = 10'000});
  engine.cycle();
  EXPECT_EQ(device_of(engine, share), device_of(engine, little));
}

TEST(TaskPacking, ALoadedDeviceIsLeftAloneWhileThereIsAnother) {
  TestEngine engine(policies_with_tasks());
  engine.add_node("n1", {.gpus = 2, .gpu_memory_mb = 80'000});
  // 0.7 x 0.9 + 0.3 x 0.8 = 0.87.
  const JobId loaded = submit(engine, {.user = "a", .milli = 800, .memory_mb = 72'000});
  engine.cycle();
  const JobId second = submit(engine, {.user = "a", .milli = 10, .memory_mb = 1'000});
  engine.cycle();
  EXPECT_NE(device_of(engine, second), device_of(engine, loaded));
  const JobId filler = engine.submit({.gpus = 1, .gpu_milli = 900, .gpu_share_mb = 75'000});
  engine.cycle();
  EXPECT_EQ(device_of(engine, filler), device_of(engine, second));
  // Both are loaded now: any that fits.
  const JobId third = submit(engine, {.user = "a", .milli = 10, .memory_mb = 1'000});
  engine.cycle();
  EXPECT_EQ(engine.state_of(third), JobState::kScheduled);
}

TEST(TaskPacking, TheLoadIsTheOneBeforeTheTask) {
  EXPECT_FALSE(TaskSpaces::is_loaded(
      {.memory_mb = 1'000, .memory_mb_left = 1'000, .milli = 1'000, .milli_left = 1'000}));
  // 0.7 x 1 + 0.3 x 0.5 = 0.85.
  EXPECT_TRUE(
      TaskSpaces::is_loaded({.memory_mb = 1'000, .memory_mb_left = 0, .milli = 1'000, .milli_left = 500}));
  EXPECT_FALSE(
      TaskSpaces::is_loaded({.memory_mb = 1'000, .memory_mb_left = 0, .milli = 1'000, .milli_left = 501}));
}

}  // namespace
}  // namespace gpusched
