// MIG slices: beside one another where the GPU's rules let them lie, where least is lost for those that come,
// and each slice back by itself.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "engine/decide/feasible.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::TestEngine;
using testing::Want;

AttemptKey key_of(const Job& job) { return {.job = job.id, .attempt = job.attempt_count, .member = 0}; }

uint32_t device_of(const TestEngine& engine, JobId id) {
  return static_cast<uint32_t>(std::countr_zero(engine.job(id).device_mask));
}

const Share& slice_of(const TestEngine& engine, JobId id) {
  const Job& job = engine.job(id);
  const Share* share = engine.device(job.node, device_of(engine, id)).share_of(key_of(job));
  CHECK(share != nullptr);
  return *share;
}

Applied released(TestEngine& engine, JobId id) {
  const NodeId node = engine.job(id).node;
  const uint32_t index = device_of(engine, id);
  return engine.apply(DeviceReleased{.node = node,
                                     .device = index,
                                     .generation = engine.device(node, index).generation,
                                     .share_of = key_of(engine.job(id))});
}

TEST(Slice, HasItsProfileItsStartAndItsMemory) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1, .gpu_memory_mb = 80'000, .mig = 1});
  const JobId job = engine.run({.mig = "3g.40gb"});
  EXPECT_EQ(slice_of(engine, job).mig_profile, "3g.40gb");
  EXPECT_EQ(slice_of(engine, job).mig_start, 4);
  EXPECT_EQ(slice_of(engine, job).milli, 428);
  EXPECT_EQ(slice_of(engine, job).memory_mb, 40'000);
  const Attempt* attempt = engine.state().find_attempt(job, 1);
  EXPECT_EQ(attempt->members[0].mig_profile, "3g.40gb");
  EXPECT_EQ(attempt->members[0].mig_start, 4);
}

TEST(Slice, SevenOfTheSmallestAndNoneMore) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1, .mig = 1});
  uint32_t starts = 0;
  for (int i = 0; i < 7; ++i) {
    starts |= 1U << static_cast<uint32_t>(slice_of(engine, engine.run({.mig = "1g.10gb"})).mig_start);
  }
  EXPECT_EQ(starts, 0b1111111u);
  const JobId eighth = engine.submit({.mig = "1g.10gb"});
  engine.cycle();
  EXPECT_EQ(engine.state_of(eighth), JobState::kPending);
  EXPECT_EQ(engine.wait_code(eighth), WaitCode::kGpusBusy);
  EXPECT_EQ(engine.device(node, 0).shares.size(), 7u);
}

TEST(Slice, NothingElseIsGivenOfAGpuInMigModeAndNoSliceOfAnother) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1, .mig = 1});
  engine.add_node("n2", {.gpus = 1});
  const JobId whole = engine.submit({.gpus = 1});
  const JobId share = engine.submit({.gpus = 1, .gpu_milli = 500});
  const JobId slice = engine.submit({.mig = "7g.80gb"});
  engine.cycle();
  EXPECT_EQ(engine.node(engine.job(whole).node).name, "n2");
  EXPECT_EQ(engine.state_of(share), JobState::kPending);
  EXPECT_EQ(engine.node(engine.job(slice).node).name, "n1");
}

TEST(Slice, TakesAGpuThatIsCutAlreadyBeforeAFreshOne) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2, .mig = 2});
  const JobId first = engine.run({.mig = "1g.10gb"});
  const JobId second = engine.run({.mig = "3g.40gb"});
  EXPECT_EQ(engine.job(first).device_mask, engine.job(second).device_mask);
  const JobId third = engine.run({.mig = "4g.40gb"});
  EXPECT_NE(engine.job(first).device_mask, engine.job(third).device_mask);
}

TEST(Slice, ItsSlotsStayTakenUntilItsNodeVouches) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1, .mig = 1});
  const JobId first = engine.run({.mig = "4g.40gb"});
  const JobId beside = engine.run({.mig = "3g.40gb"});
  const JobId next = engine.submit({.mig = "2g.20gb"});
  engine.ended(first);
  engine.cycle();
  EXPECT_EQ(engine.state_of(next), JobState::kPending);
  EXPECT_TRUE(released(engine, beside).rejection.has_value());  // It runs.
  EXPECT_FALSE(released(engine, first).rejection.has_value());
  engine.cycle();
  EXPECT_EQ(engine.state_of(next), JobState::kScheduled);
  EXPECT_LT(slice_of(engine, next).mig_start, 4);
}

TEST(Slice, APlanThatLaysOneOverAnotherIsDropped) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1, .mig = 1});
  const JobId there = engine.run({.mig = "3g.40gb"});
  ASSERT_EQ(slice_of(engine, there).mig_start, 4);
  const JobId job = engine.submit({.mig = "2g.20gb"});
  const auto plan_at = [&](int32_t start) {
    return CommitPlan{.based_on = engine.state().last.sequence,
                      .groups = {{.job = job,
                                  .attempt = 1,
                                  .members = {{.node = node,
                                               .device_mask = 1,
                                               .generations = {engine.device(node, 0).generation},
                                               .mig_start = start}}}}};
  };
  for (const int32_t start : {4, 6, 1, -2, 8, 100}) {
    engine.apply(plan_at(start));
    EXPECT_EQ(engine.state_of(job), JobState::kPending) << start;
  }
  engine.apply(plan_at(2));
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
  EXPECT_EQ(slice_of(engine, job).mig_start, 2);
}

TEST(Slice, AKindThatHasTheProfileServesWhateverItsModel) {
  TestEngine engine;
  engine.add_node("small", {.gpus = 1, .model = "NVIDIA A100-PCIE-40GB", .gpu_memory_mb = 40'960, .mig = 1});
  engine.add_node("large", {.gpus = 1, .mig = 1});
  // The GPU of 40 GB has room for four of these, each with two eighths of its memory; the other for seven.
  for (int i = 0; i < 11; ++i) EXPECT_EQ(engine.state_of(engine.run({.mig = "1g.10gb"})), JobState::kRunning);
  const JobId only = engine.submit({.model = "A30", .mig = "1g.10gb"});
  engine.cycle();
  EXPECT_EQ(engine.wait_code(only), WaitCode::kNoMatchingGpu);
}

TEST(Slice, WhatNoGpuHasWaitsAndSaysWhatComesNearest) {
  TestEngine engine;
  const auto nearest = [&](const JobId id) {
    return nearest_node(engine.state(), engine.state().class_of(engine.job(id)).parts.front());
  };
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit({.mig = "1g.5gb"});
  engine.cycle();
  EXPECT_EQ(engine.wait_code(job), WaitCode::kNoMatchingGpu);
  EXPECT_EQ(nearest(job), "node n1 is the closest match: none of its GPUs is in MIG mode");
  engine.add_node("n2", {.gpus = 2, .mig = 1});
  engine.cycle();
  EXPECT_EQ(engine.wait_code(job), WaitCode::kNoMatchingGpu);
  EXPECT_EQ(nearest(job),
            "node n2 is the closest match: its GPUs in MIG mode offer 7g.80gb, 4g.40gb, 3g.40gb, 2g.20gb, "
            "1g.20gb, 1g.10gb, 1g.10gb+me");
  EXPECT_TRUE(engine.try_submit({.require_feasible = true, .mig = "1g.5gb"}).rejection.has_value());
  EXPECT_FALSE(engine.try_submit({.require_feasible = true, .mig = "1g.10gb"}).rejection.has_value());
}

TEST(Slice, OfSeveralMembersOrBesideAnArrangementIsRefused) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2, .mig = 2});
  EXPECT_TRUE(engine.try_submit({.members = 2, .mig = "1g.10gb"}).rejection.has_value());
  EXPECT_TRUE(engine.try_submit({.gpu_memory_mb = 100, .mig = "1g.10gb"}).rejection.has_value());
  EXPECT_TRUE(engine.try_submit({.place = {{.exclusive = true}}, .mig = "1g.10gb"}).rejection.has_value());
  EXPECT_TRUE(engine.try_submit({.place = {{.device_mask = 1}}, .mig = "1g.10gb"}).rejection.has_value());
  EXPECT_FALSE(engine.try_submit({.mig = "1g.10gb"}).rejection.has_value());
}

TEST(Slice, CountsAsItsPartOfAGpuAndTheMemoryOfItsName) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2, .mig = 2});
  const TenantId lab = engine.add_tenant("lab", {}, {.resources = {.gpus = 1}});
  engine.run({.tenant = lab, .mig = "4g.40gb"});
  engine.run({.tenant = lab, .mig = "3g.40gb"});
  EXPECT_EQ(engine.tenant(lab).usage.gpu_milli, 571 + 428);
  EXPECT_EQ(engine.tenant(lab).usage.gpu_memory_mb, 80 * 1024);
  const JobId third = engine.submit({.tenant = lab, .mig = "1g.10gb"});
  engine.cycle();
  EXPECT_EQ(engine.wait_code(third), WaitCode::kQuota);
}

/// The node registers again, the device in MIG mode or not.
void register_with(TestEngine& engine, int mig) {
  engine.apply(testing::registration_of("n1", {.gpus = 1, .mig = mig}));
}

TEST(Slice, AModeThatWasSwitchedCountsFromWhenTheGpuIsFree) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1, .mig = 1});
  const JobId first = engine.run({.mig = "1g.10gb"});
  engine.started(first);
  RegisterNode again = testing::registration_of("n1", {.gpus = 1});
  again.attempts = {{.job = first, .attempt = 1, .device_mask = 1}};
  engine.apply(again);
  EXPECT_TRUE(engine.state().device_classes[engine.device(node, 0).device_class].mig);
  const JobId slice = engine.submit({.mig = "1g.10gb"});
  const JobId whole = engine.submit({.gpus = 1});
  engine.cycle();
  EXPECT_EQ(engine.state_of(slice), JobState::kPending);
  EXPECT_EQ(engine.state_of(whole), JobState::kPending);
  engine.ended(first);
  released(engine, first);
  EXPECT_FALSE(engine.state().device_classes[engine.device(node, 0).device_class].mig);
  engine.cycle();
  EXPECT_EQ(engine.state_of(slice), JobState::kPending);
  EXPECT_EQ(engine.state_of(whole), JobState::kScheduled);
  const JobId other = engine.submit({.mig = "2g.20gb"});
  engine.cycle();
  EXPECT_EQ(engine.wait_code(other), WaitCode::kNoMatchingGpu);
  engine.ended(whole);
  engine.apply(DeviceReleased{.node = node, .device = 0, .generation = engine.device(node, 0).generation});
  register_with(engine, 1);
  engine.cycle();
  EXPECT_EQ(engine.state_of(slice), JobState::kScheduled);
}

/// By looking at every device: the lowest rank of one that is cut already and takes the slice, else of a
/// fresh one.
struct Exhaustive {
  bool found = false;
  bool fresh = false;
  int32_t loss = 0;
};

int32_t worth_left(const mig::Table& table, std::vector<mig::Instance> present) {
  int32_t worth = 0;
  for (const mig::Profile& profile : table.profiles) {
    for (int32_t start = 0; start < table.slots; ++start) {
      if (mig::fits(table, present, profile, start)) worth += profile.compute;
    }
  }
  return worth;
}

Exhaustive best_by_hand(const State& state, const std::string& name) {
  Exhaustive best;
  for (const Node& node : state.nodes) {
    for (const Device& device : node.devices) {
      const mig::Table* table = state.device_classes[device.device_class].table();
      const mig::Profile* profile = table == nullptr ? nullptr : table->profile(name);
      if (profile == nullptr) continue;
      const std::vector<mig::Instance> present = device.slices(*table);
      for (int32_t start = 0; start < table->slots; ++start) {
        if (!mig::fits(*table, present, *profile, start)) continue;
        std::vector<mig::Instance> then = present;
        then.push_back({.profile = profile, .start = start});
        const Exhaustive here{.found = true,
                              .fresh = present.empty(),
                              .loss = worth_left(*table, present) - worth_left(*table, then)};
        if (!best.found || std::pair(here.fresh, here.loss) < std::pair(best.fresh, best.loss)) best = here;
      }
    }
  }
  return best;
}

// Slices come and go on a small cluster of two models; what the planner's index finds loses as little as what
// a look at everything finds.
TEST(SliceChoice, LosesAsLittleAsTheBestOfAll) {
  std::mt19937 random(20'261'122);
  for (int round = 0; round < 12; ++round) {
    TestEngine engine;
    engine.add_node("n1", {.gpus = 2, .mig = 2});
    engine.add_node("n2", {.gpus = 3, .mig = 2});
    engine.add_node("n3", {.gpus = 1, .model = "NVIDIA A100-PCIE-40GB", .gpu_memory_mb = 40'960, .mig = 1});
    static const char* const kNames[] = {"1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb",    "3g.40gb",
                                         "4g.40gb", "7g.80gb", "2g.10gb", "1g.10gb+me", "3g.20gb"};
    std::vector<JobId> live;
    for (int step = 0; step < 120; ++step) {
      if (!live.empty() && random() % 100 < 45) {
        const std::size_t at = random() % live.size();
        engine.ended(live[at]);
        released(engine, live[at]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const std::string name = kNames[random() % 10];
      const Exhaustive expected = best_by_hand(engine.state(), name);
      const JobId job = engine.submit({.mig = name});
      const State before = engine.state().clone();
      engine.cycle();
      ASSERT_EQ(engine.state_of(job) == JobState::kScheduled, expected.found) << name;
      if (!expected.found) {
        engine.apply(CancelJob{.job = job});
        continue;
      }
      live.push_back(job);
      const Device& device = before.find_node(engine.job(job).node)->devices[device_of(engine, job)];
      const mig::Table& table = *before.device_classes[device.device_class].table();
      std::vector<mig::Instance> then = device.slices(table);
      then.push_back({.profile = table.profile(name), .start = slice_of(engine, job).mig_start});
      const int32_t loss = worth_left(table, device.slices(table)) - worth_left(table, then);
      EXPECT_EQ(device.shares.empty(), expected.fresh) << name;
      EXPECT_EQ(loss, expected.loss) << name;
    }
  }
}

TEST(Slice, AProfileOfNoKnownSizeWaitsBelowALimitOfGpuMemory) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  Limits limits;
  limits.set(Resource::kGpuMemory, 15'000);
  const TenantId lab = engine.add_tenant("lab", {}, limits);
  engine.add_node("n1", {.gpus = 1});
  engine.add_node("n2", {.gpus = 1, .mig = 1});
  JobRequest request = testing::request_of({.gpus = 1, .gpu_milli = 250});
  request.parts.front().mig_profile = "unheard of";
  const Applied submitted = engine.apply(SubmitJobs{.tenant = lab, .jobs = {request}});
  ASSERT_FALSE(submitted.rejection.has_value());
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.state_of(JobId{submitted.first_id}), JobState::kPending);
}

}  // namespace
}  // namespace gpusched
