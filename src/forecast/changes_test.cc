#include "forecast/changes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "forecast/forecast.h"

namespace gpusched::forecast {
namespace {

using gpusched::testing::request_of;
using gpusched::testing::TestEngine;
using gpusched::testing::Want;

class Changes : public ::testing::Test {
 protected:
  World world() const {
    World made(engine.state().clone_unfinished(), policy::default_policies(), engine.now());
    Work work{.left = limits::kForecastWorkMax};
    EXPECT_TRUE(made.settle(work));
    return made;
  }
  std::vector<Change> changes(JobId job, std::size_t count = 10) const {
    World scratch = world();
    const uint32_t before = scratch.state().jobs.find(job)->job_class;
    Work work{.left = limits::kForecastWorkMax};
    std::vector<Change> found = smallest_changes(scratch, job, count, work);
    EXPECT_EQ(scratch.state().jobs.find(job)->state, JobState::kPending);
    EXPECT_EQ(scratch.state().class_of(*scratch.state().jobs.find(job)).parts,
              engine.state().classes[before].parts);
    EXPECT_EQ(scratch.state().jobs.find(job)->max_runtime, engine.job(job).max_runtime);
    return found;
  }
  /// The changed request, submitted for real, starts.
  void expect_starts(const Change& change, JobId job) {
    engine.apply(UpdateJob{.job = job,
                           .given = uint32_t{kJobParts} | kJobMaxRuntime,
                           .max_runtime = change.max_runtime,
                           .parts = {change.part}});
    engine.cycle();
    EXPECT_EQ(engine.state_of(job), JobState::kScheduled) << to_string(change.kind);
    EXPECT_EQ(engine.job(job).node, change.start.members.front().node);
    EXPECT_EQ(engine.job(job).device_mask, change.start.members.front().device_mask);
  }

  TestEngine engine;

  struct Tenants {
    TenantId low, high;
  };
  /// The high one's jobs may have the low one's ended.
  Tenants tenants_of_which_one_preempts() {
    const Tenants made{.low = engine.add_tenant("low"), .high = engine.add_tenant("high")};
    engine.apply(UpdateTenant{.tenant = made.low, .given = kTenantAllowPreemption, .allow_preemption = true});
    engine.apply(UpdateTenant{.tenant = made.high, .given = kTenantCanPreempt, .can_preempt_others = true});
    return made;
  }
};

TEST_F(Changes, FewerGpusAsManyAsThereAre) {
  engine.add_node("n1", {.gpus = 8});
  engine.run({.gpus = 3});
  const JobId waits = engine.submit({.gpus = 8});
  const std::vector<Change> found = changes(waits);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().kind, ChangeKind::kFewerGpus);
  EXPECT_EQ(found.front().part.gpu_count, 5);
  expect_starts(found.front(), waits);
}

TEST_F(Changes, AreToldOfAJobThatIsMoreThanItsTenantMayHaveByNow) {
  engine.add_node("n1", {.gpus = 8});
  engine.run({.gpus = 7});
  const TenantId small = engine.add_tenant("small");
  const JobId waits = engine.submit({.gpus = 4, .tenant = small});
  Limits limits;
  limits.set(Resource::kGpus, 2);
  engine.apply(UpdateTenant{.tenant = small, .given = kTenantMaxGpus, .limits = limits});
  const std::vector<Change> found = changes(waits);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().kind, ChangeKind::kFewerGpus);
  EXPECT_EQ(found.front().part.gpu_count, 1);
  expect_starts(found.front(), waits);
}

TEST_F(Changes, AnotherModelBeforeFewerGpus) {
  engine.add_node("n1", {.gpus = 4});
  engine.add_node("n2", {.gpus = 4, .model = "NVIDIA L4", .gpu_memory_mb = 24'576});
  engine.run({.gpus = 2, .model = "A100"});
  const JobId waits = engine.submit({.gpus = 4, .model = "A100"});
  const std::vector<Change> found = changes(waits);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].kind, ChangeKind::kOtherModel);
  EXPECT_EQ(found[1].kind, ChangeKind::kFewerGpus);
  EXPECT_EQ(found[1].part.gpu_count, 2);
  expect_starts(found.front(), waits);
}

TEST_F(Changes, LessMemoryOfGpus) {
  engine.add_node("n1", {.gpus = 1});
  engine.add_node("n2", {.gpus = 1, .gpu_memory_mb = 40'960});
  engine.run({.gpus = 1, .gpu_memory_mb = 80'000});
  const JobId waits = engine.submit({.gpus = 1, .gpu_memory_mb = 80'000});
  const std::vector<Change> found = changes(waits);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().kind, ChangeKind::kLessGpuMemory);
  EXPECT_EQ(found.front().part.gpu_memory_mb, 40'960);
  expect_starts(found.front(), waits);
}

TEST_F(Changes, LessOfTheBoxAsMuchAsIsFree) {
  engine.add_node("n1", {.gpus = 8, .cpu_milli = 16'000, .memory_mb = 64 * 1024});
  engine.run({.gpus = 1, .cpu_milli = 10'000, .memory_mb = 1024});
  const JobId waits = engine.submit({.gpus = 1, .cpu_milli = 8'000, .memory_mb = 1024});
  const std::vector<Change> found = changes(waits);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().kind, ChangeKind::kLessCpu);
  EXPECT_EQ(found.front().part.cpu_milli, 6'000);
  expect_starts(found.front(), waits);
}

TEST_F(Changes, AShorterLimitThatFitsInBeforeWhatIsKeptFree) {
  engine.add_node("n1", {.gpus = 8});
  engine.run({.gpus = 6, .max_runtime = hours(2)});
  engine.submit({.gpus = 8, .max_runtime = hours(1)});
  const JobId waits = engine.submit({.gpus = 2, .max_runtime = hours(4)});
  engine.cycle();
  ASSERT_EQ(engine.wait_code(waits), WaitCode::kReserved);
  const std::vector<Change> found = changes(waits);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().kind, ChangeKind::kShorterLimit);
  EXPECT_GE(found.front().max_runtime, hours(1));
  EXPECT_LE(found.front().max_runtime, hours(2));
  expect_starts(found.front(), waits);
}

TEST_F(Changes, WithinItsQuotaFewerGpus) {
  engine.add_node("n1", {.gpus = 8});
  Limits limits;
  limits.set(Resource::kGpus, 4);
  const TenantId tenant = engine.add_tenant("vision", {}, limits);
  engine.run({.gpus = 3, .tenant = tenant});
  const JobId waits = engine.submit({.gpus = 2, .tenant = tenant});
  const std::vector<Change> found = changes(waits);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().part.gpu_count, 1);
  expect_starts(found.front(), waits);
}

TEST_F(Changes, NothingHelpsWhereNothingIsFree) {
  engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 2});
  EXPECT_TRUE(changes(engine.submit({.gpus = 2})).empty());
  const JobId held = engine.submit({.gpus = 1, .held = true});
  EXPECT_TRUE(changes(held).empty());
}

TEST_F(Changes, ATrialIsRefusedAsTheSubmissionWouldBe) {
  engine.add_node("n1", {.gpus = 2});
  World scratch = world();
  Work work{.left = 1'000};
  const Trial unknown = try_submission(
      scratch, {.tenant = TenantId{404}, .request_key = {}, .jobs = {request_of({.gpus = 1})}}, work);
  ASSERT_TRUE(unknown.rejection.has_value());
  EXPECT_EQ(unknown.rejection->code, RejectionCode::kTenantNotFound);
  const Trial infeasible = try_submission(scratch,
                                          {.tenant = kDefaultTenant,
                                           .request_key = {},
                                           .jobs = {request_of({.gpus = 3, .require_feasible = true})}},
                                          work);
  ASSERT_TRUE(infeasible.rejection.has_value());
  EXPECT_EQ(infeasible.rejection->code, RejectionCode::kInfeasible);
}

TEST_F(Changes, ATrialSaysWhereItStartsAndNothingHappens) {
  engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 1});
  World scratch = world();
  Work work{.left = 1'000};
  const Trial fits = try_submission(
      scratch, {.tenant = kDefaultTenant, .request_key = {}, .jobs = {request_of({.gpus = 1})}}, work);
  ASSERT_TRUE(fits.start.has_value());
  EXPECT_EQ(fits.start->members.front().device_mask, 2U);
  EXPECT_EQ(scratch.state().jobs.find(fits.job)->state, JobState::kPending);
}

TEST_F(Changes, ATrialOfAnArrayIsOfItsFirstElement) {
  engine.add_node("n1", {.gpus = 2});
  World scratch = world();
  Work work{.left = 1'000};
  const Trial trial =
      try_submission(scratch,
                     {.tenant = kDefaultTenant,
                      .request_key = {},
                      .jobs = {request_of({.gpus = 1, .flow = {{.array = {{.first = 0, .last = 9}}}}})}},
                     work);
  EXPECT_TRUE(trial.start.has_value());
  EXPECT_EQ(scratch.state().jobs.find(trial.subject)->array, trial.job);
}

TEST_F(Changes, AnotherTenantsIdleGuaranteeWouldStartIt) {
  engine.add_node("n1", {.gpus = 4});
  const TenantId owner = engine.add_tenant("owner");
  const TenantId small = engine.add_tenant("small");
  const TenantId borrower = engine.add_tenant("borrower");
  const TenantId asks = engine.add_tenant("asks");
  const auto guarantee = [&](TenantId tenant, int64_t gpus) {
    engine.apply(UpdateTenant{.tenant = tenant, .given = kTenantGuaranteeGpus, .guarantee = {.gpus = gpus}});
  };
  guarantee(owner, 3);
  guarantee(small, 1);
  engine.run({.gpus = 2, .tenant = borrower});
  engine.run({.gpus = 2, .tenant = borrower});
  engine.advance(hours(1));
  const JobId waits = engine.submit({.gpus = 2, .tenant = asks});
  const std::vector<Change> found = changes(waits);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, ChangeKind::kIdleGuarantee);
  EXPECT_EQ(found[0].lender, owner);  // The other one's is too small.
  EXPECT_EQ(found[0].lent_gpus, 2);
  ASSERT_EQ(found[0].start.preemptions.size(), 1U);
  // Lent for real, it does.
  guarantee(owner, 1);
  guarantee(asks, 2);
  engine.cycle();
  EXPECT_NE(engine.state().find_promise(waits), nullptr);
}

TEST_F(Changes, AGuaranteeThatIsUsedIsNotOffered) {
  engine.add_node("n1", {.gpus = 4});
  const TenantId owner = engine.add_tenant("owner");
  const TenantId asks = engine.add_tenant("asks");
  engine.apply(UpdateTenant{.tenant = owner, .given = kTenantGuaranteeGpus, .guarantee = {.gpus = 4}});
  engine.run({.gpus = 4, .tenant = owner});
  engine.advance(hours(1));
  EXPECT_TRUE(changes(engine.submit({.gpus = 2, .tenant = asks})).empty());
}

TEST_F(Changes, AForecastNamesWhomTheJobEndsIfItStillWaits) {
  engine.add_node("n1", {.gpus = 2});
  const auto [low, high] = tenants_of_which_one_preempts();
  const JobId victim = engine.run({.gpus = 2, .tenant = low});
  const JobId waits = engine.submit({.gpus = 1, .priority = 100, .tenant = high});
  const JobId lesser = engine.submit({.gpus = 1, .tenant = low});
  engine.settle();
  engine.cycle();
  ASSERT_EQ(engine.state().find_promise(waits), nullptr);  // What just started is protected.
  class Forever final : public RunSource {
    Duration whole_run(const State&, const Job&, Duration elapsed, int32_t) override {
      return elapsed + hours(9);
    }
  } forever;
  const Forecast made = forecast(world(), forever, {.runs = 1});
  ASSERT_NE(made.find(waits), nullptr);
  EXPECT_EQ(made.find(waits)->ends, std::vector<JobId>{victim});
  EXPECT_GT(made.find(waits)->ends_at, engine.now());
  EXPECT_LE(made.find(waits)->ends_at, made.find(waits)->p50);
  EXPECT_TRUE(made.find(lesser)->ends.empty());
}

TEST_F(Changes, ATrialNamesWhomItWouldEnd) {
  engine.add_node("n1", {.gpus = 2});
  const auto [low, high] = tenants_of_which_one_preempts();
  const JobId victim = engine.run({.gpus = 2, .tenant = low});
  engine.advance(hours(1));
  World scratch = world();
  Work work{.left = 10'000};
  const Trial trial = try_submission(
      scratch,
      {.tenant = high, .request_key = {}, .jobs = {request_of({.gpus = 1, .priority = 100, .tenant = high})}},
      work);
  ASSERT_TRUE(trial.start.has_value());
  ASSERT_EQ(trial.start->preemptions.size(), 1U);
  EXPECT_EQ(trial.start->preemptions.front().job, victim);
  EXPECT_EQ(scratch.state().find_attempt(victim, 1)->stop, StopReason::kNone);
}

/// A small cluster with some work on it, and some that waits.
class RandomCluster {
 public:
  explicit RandomCluster(uint64_t seed) : prng_(seed) {
    EngineConfig config{.feature_level = kFeatureLevel};
    if (prng_.chance(300))
      config.pools = {.online_milli = 500, .batch_milli = 500, .lend = prng_.chance(500)};
    if (prng_.chance(300)) config.policy.run_times = "limits";
    engine_.apply(Configure{.config = config});
    for (const char* const name : {"lab", "team", "owner"}) tenants_.push_back(engine_.add_tenant(name));
    for (int64_t count = prng_.between(1, 4); count > 0; --count) add_node();
    if (prng_.chance(400)) book();
    for (int64_t count = prng_.between(0, 8); count > 0; --count) run_one();
    engine_.advance(minutes(prng_.between(0, 30)));
    for (const TenantId tenant : tenants_) {
      Limits limits;
      if (prng_.chance(200)) limits.set(Resource::kGpus, prng_.between(1, 6));
      if (prng_.chance(100)) limits.set(Resource::kCpu, prng_.between(2, 12) * 1'000);
      engine_.apply(
          UpdateTenant{.tenant = tenant, .given = kTenantMaxGpus | kTenantMaxCpu, .limits = limits});
    }
    if (prng_.chance(400)) {
      engine_.apply(UpdateTenant{.tenant = tenants_.back(),
                                 .given = kTenantGuaranteeGpus,
                                 .guarantee = {.gpus = prng_.between(1, 6)}});
    }
    for (int64_t count = prng_.between(1, 6); count > 0; --count) submit(5);
    // One kind has so many that not all are looked at together.
    if (prng_.chance(20)) {
      Want many = some_want(3);
      many.max_runtime = hours(9);
      for (int i = 0; i < 300; ++i) engine_.submit(many);
    }
    engine_.cycle();
  }

  World world() const {
    World made(engine_.state().clone_unfinished(), policy::default_policies(), engine_.now());
    Work work{.left = limits::kForecastWorkMax};
    EXPECT_TRUE(made.settle(work));
    return made;
  }
  /// Those that wait in `world`, some of them.
  static std::vector<JobId> waiting(const World& world) {
    std::vector<JobId> jobs;
    world.state().jobs.for_each([&](const Job& job) {
      if (job.is_queued()) jobs.push_back(job.id);
      return jobs.size() < 6;
    });
    return jobs;
  }

 private:
  void add_node() {
    const bool small = prng_.chance(300);
    nodes_.push_back(engine_.add_node("n" + std::to_string(nodes_.size()),
                                      {.gpus = static_cast<int>(prng_.between(0, 8)),
                                       .model = small ? "NVIDIA L4" : "NVIDIA A100-SXM4-80GB",
                                       .gpu_memory_mb = small ? 24'576 : 81'920,
                                       .cpu_milli = prng_.between(4, 16) * 1'000,
                                       .memory_mb = prng_.between(4, 16) * 1'024}));
  }
  void book() {
    std::vector<NodeId> nodes;
    for (const NodeId node : nodes_)
      if (nodes.empty() || prng_.chance(700)) nodes.push_back(node);
    engine_.apply(MakeBooking{.name = "maintenance",
                              .nodes = nodes,
                              .begin_after = minutes(prng_.between(31, 300)),
                              .length = hours(1)});
  }
  Want some_want(int64_t gpus_max) {
    Want want{.gpus = static_cast<int32_t>(prng_.between(0, gpus_max)),
              .cpu_milli = static_cast<int32_t>(prng_.between(0, 8)) * 1'000,
              .memory_mb = prng_.between(0, 8) * 1'024,
              .priority = static_cast<int32_t>(prng_.between(0, 3)),
              .tenant = tenants_[prng_.below(tenants_.size())]};
    if (prng_.chance(700)) want.max_runtime = minutes(prng_.between(1, 300));
    if (want.gpus > 0 && prng_.chance(200)) want.gpu_memory_mb = prng_.chance(500) ? 80'000 : 20'000;
    if (want.gpus > 0 && prng_.chance(200)) want.model = prng_.chance(500) ? "A100" : "L4";
    if (want.gpus == 1 && prng_.chance(200)) want.gpu_milli = 500, want.gpu_memory_mb = 0;
    if (prng_.chance(100)) want.work = WorkClass::kOnline;
    if (want.gpu_milli == 0 && prng_.chance(100)) want.members = static_cast<int32_t>(prng_.between(2, 3));
    if (prng_.chance(50)) want.place = {{.exclusive = true}};
    return want;
  }
  JobId submit(int64_t gpus_max) {
    const Applied applied = engine_.try_submit(some_want(gpus_max));
    return applied.rejection ? JobId{} : JobId{applied.first_id};
  }
  void run_one() {
    const JobId job = submit(3);
    engine_.cycle();
    if (!job.valid()) return;
    if (engine_.state_of(job) == JobState::kScheduled) {
      engine_.started(job);
    } else {
      engine_.apply(CancelJob{.job = job});
    }
  }

  Prng prng_;
  TestEngine engine_;
  std::vector<TenantId> tenants_;
  std::vector<NodeId> nodes_;
};

/// Done for real in another copy, it starts the job there.
void carry_out(World world, JobId job, const Change& change) {
  const Job& waits = world.state().job_at(job);
  if (change.kind == ChangeKind::kIdleGuarantee) {
    const auto guarantee = [&](TenantId tenant, int64_t more) {
      Amount amount = world.state().tenant_at(tenant).guarantee;
      amount.gpus += more;
      EXPECT_FALSE(
          world.apply(UpdateTenant{.tenant = tenant, .given = kTenantGuaranteeGpus, .guarantee = amount})
              .rejection);
    };
    const TenantId borrower = waits.tenant;
    guarantee(change.lender, -change.lent_gpus);
    guarantee(borrower, change.lent_gpus);
  } else {
    std::vector<Part> parts = world.state().class_of(waits).parts;
    parts.front() = change.part;
    const Applied applied = world.apply(UpdateJob{.job = job,
                                                  .given = uint32_t{kJobParts} | kJobMaxRuntime,
                                                  .max_runtime = change.max_runtime,
                                                  .parts = std::move(parts)});
    EXPECT_FALSE(applied.rejection) << to_string(applied.rejection->code);
  }
  Work work{.left = limits::kForecastWorkMax};
  EXPECT_TRUE(world.settle(work));
  const bool starts =
      world.state().job_at(job).state == JobState::kScheduled || world.state().find_promise(job) != nullptr;
  EXPECT_TRUE(starts) << "job " << job.value << ", " << to_string(change.kind) << ": it waits, "
                      << describe(world.planner().reason(world.state().job_at(job).job_class));
}

TEST(Advice, CarriedOutItStartsTheJob) {
  std::map<ChangeKind, int> told;
  int booked = 0;
  for (uint64_t seed = 1; seed <= 60 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomCluster cluster(seed);
    const World before = cluster.world();
    for (const JobId job : RandomCluster::waiting(before)) {
      World scratch = before.copy();
      const WaitReason reason = before.planner().reason(before.state().job_at(job).job_class);
      Work work{.left = limits::kForecastWorkMax};
      for (const Change& change : smallest_changes(scratch, job, 10, work)) {
        ++told[change.kind];
        booked +=
            change.kind == ChangeKind::kShorterLimit && reason.code == WaitCode::kReservedForOthers ? 1 : 0;
        carry_out(before.copy(), job, change);
      }
    }
  }
  EXPECT_GT(booked, 0);
  for (const ChangeKind kind : {ChangeKind::kShorterLimit, ChangeKind::kLessCpu, ChangeKind::kLessMemory,
                                ChangeKind::kLessGpuMemory, ChangeKind::kOtherModel, ChangeKind::kFewerGpus,
                                ChangeKind::kFewerOfOtherModel, ChangeKind::kIdleGuarantee})
    EXPECT_GT(told[kind], 0) << to_string(kind);
}

TEST_F(Changes, AShorterLimitBeforeAReservation) {
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  engine.apply(
      MakeBooking{.name = "maintenance", .nodes = {node}, .begin_after = minutes(90), .length = hours(1)});
  const JobId waits = engine.submit({.gpus = 2, .max_runtime = hours(4)});
  engine.cycle();
  ASSERT_EQ(engine.wait_code(waits), WaitCode::kReservedForOthers);
  const std::vector<Change> found = changes(waits);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().kind, ChangeKind::kShorterLimit);
  EXPECT_GE(found.front().max_runtime, minutes(80));
  EXPECT_LT(found.front().max_runtime, minutes(90));
  expect_starts(found.front(), waits);
}

TEST_F(Changes, AShorterLimitBehindManyThatAreLonger) {
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.apply(
      MakeBooking{.name = "maintenance", .nodes = {node}, .begin_after = hours(1), .length = hours(1)});
  for (int i = 0; i < 600; ++i) engine.submit({.gpus = 1, .max_runtime = hours(2)});
  const JobId waits = engine.submit({.gpus = 1, .max_runtime = hours(3)});
  engine.cycle();
  const std::vector<Change> found = changes(waits);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().kind, ChangeKind::kShorterLimit);
  expect_starts(found.front(), waits);
}

}  // namespace
}  // namespace gpusched::forecast
