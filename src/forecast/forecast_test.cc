#include "forecast/forecast.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"
#include "forecast/testing/test_world.h"

namespace gpusched::forecast {
namespace {

using gpusched::testing::TestEngine;
using gpusched::testing::world_of;

/// Every run takes `shortest` plus its part of `spread`.
class Spread final : public RunSource {
 public:
  Spread(Duration shortest, Duration spread) : shortest_(shortest), spread_(spread) {}
  Duration whole_run(const State&, const Job&, Duration elapsed, int32_t per_mille) override {
    const Duration run = shortest_ + milliseconds(spread_.ms() * per_mille / 1000);
    return std::max(run, elapsed + milliseconds(1));
  }

 private:
  Duration shortest_, spread_;
};

Options exact() { return {.runs = 16, .start_delay = {}, .stop_delay = {}, .release_delay = {}}; }
const Estimate& estimate_of(const Forecast& made, JobId job) {
  const Estimate* found = made.find(job);
  EXPECT_NE(found, nullptr);
  static const Estimate kNone;
  return found == nullptr ? kNone : *found;
}

TEST(World, ACopyGoesOnByItself) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const World first = world_of(engine);
  World second = first.copy();
  second.apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {gpusched::testing::request_of({.gpus = 1})}});
  Work work{.left = 1'000};
  EXPECT_TRUE(second.settle(work));
  EXPECT_EQ(second.state().attempts.size(), 1U);
  EXPECT_EQ(second.placed().size(), 1U);
  EXPECT_TRUE(first.state().attempts.empty());
  EXPECT_EQ(first.state().digest, engine.digest());
}

TEST(World, WithoutWhatIsOverTheSameCommandsHaveTheSameEvents) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 4});
  const JobId parent = engine.run({.gpus = 1});
  engine.run({.gpus = 3});
  engine.ended(parent);
  engine.submit({.gpus = 2});
  World world(engine.state().clone_unfinished(), policy::default_policies(), engine.now());
  EXPECT_EQ(world.state().jobs.find(parent), nullptr);
  EXPECT_EQ(world.state().digest, engine.digest());
  for (const int32_t gpus : {1, 2}) {
    const gpusched::testing::Want want{.gpus = gpus};
    const Applied here = engine.try_submit(want);
    const Applied there =
        world.apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {gpusched::testing::request_of(want)}});
    EXPECT_EQ(here.first_id, there.first_id);
    EXPECT_EQ(world.state().digest, engine.digest());
  }
}

TEST(World, WouldStartNamesDevicesAndLeavesTheJobWaiting) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  World world = world_of(engine);
  for (int round = 0; round < 3; ++round) {
    const JobId job{
        world
            .apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {gpusched::testing::request_of({.gpus = 2})}})
            .first_id};
    Work work{.left = 1'000};
    const std::optional<PlanGroup> start = world.would_start(job, work);
    ASSERT_TRUE(start.has_value()) << round;
    EXPECT_EQ(start->members.front().device_mask, 3U);
    EXPECT_EQ(world.state().jobs.find(job)->state, JobState::kPending);
    world.apply(CancelJob{.job = job});
  }
}

TEST(World, WouldStartSaysNothingOfABlockedJobAndThePlannerSaysWhy) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 1});
  const JobId waits = engine.submit({.gpus = 2});
  World world = world_of(engine);
  Work work{.left = 1'000};
  EXPECT_FALSE(world.would_start(waits, work).has_value());
  const Job& job = *world.state().jobs.find(waits);
  EXPECT_EQ(world.planner().reason(job.job_class).code, WaitCode::kGpusBusy);
  EXPECT_EQ(world.planner().reason(job.job_class).gpus_free_max, 1);
}

TEST(Forecast, AJobThatFitsStartsNow) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit_gpus(1);
  Spread source(minutes(1), {});
  const Forecast made = forecast(world_of(engine), source, exact());
  EXPECT_EQ(made.runs, 16U);
  EXPECT_EQ(estimate_of(made, job).p50, engine.now());
  EXPECT_EQ(estimate_of(made, job).p90, engine.now());
}

TEST(Forecast, ADeviceThatDrainsForLongMayDrainForAsLongAgain) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  const JobId waits = engine.submit_gpus(1);
  Spread source(minutes(1), {});
  EXPECT_EQ(estimate_of(forecast(world_of(engine), source, exact()), waits).p50, engine.now());
  engine.advance(seconds(20));
  EXPECT_EQ(estimate_of(forecast(world_of(engine), source, exact()), waits).p50, engine.now() + seconds(20));
}

TEST(Forecast, ABlockedJobStartsWhenWhatRunsEnds) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  const Time began = engine.now();
  engine.advance(seconds(20));
  const JobId waits = engine.submit_gpus(1);
  Spread source(minutes(1), {});
  const Estimate estimate = estimate_of(forecast(world_of(engine), source, exact()), waits);
  EXPECT_EQ(estimate.p50, began + minutes(1));
  EXPECT_EQ(estimate.p90, began + minutes(1));
}

TEST(Forecast, TheQuantilesOfTheStartAreThoseOfTheRunBeforeIt) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  const JobId waits = engine.submit_gpus(1);
  Spread source({}, seconds(1'000));
  const Estimate estimate = estimate_of(forecast(world_of(engine), source, exact()), waits);
  // Sixteen runs see a sixteenth each of what is likely.
  EXPECT_NEAR(static_cast<double>((estimate.p50 - engine.now()).ms()), 500'000, 63'000);
  EXPECT_NEAR(static_cast<double>((estimate.p90 - engine.now()).ms()), 900'000, 63'000);
}

TEST(Forecast, AtTheLatestItStartsWhenWhatRunsHasUsedUpItsTime) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 1, .max_runtime = hours(8)});
  engine.run({.gpus = 1});
  const JobId after_limit = engine.submit({.gpus = 1, .max_runtime = hours(2)});
  const JobId after_both = engine.submit({.gpus = 2});
  Spread source(minutes(10), minutes(10));
  const Forecast made = forecast(world_of(engine), source, exact());
  EXPECT_LT(estimate_of(made, after_limit).p90, engine.now() + minutes(21));
  EXPECT_EQ(estimate_of(made, after_limit).at_latest, engine.now() + hours(8));
  // One that may run for ever is before it.
  EXPECT_LT(estimate_of(made, after_both).p90, kNever);
  EXPECT_EQ(estimate_of(made, after_both).at_latest, kNever);
}

TEST(Forecast, TheSameQuestionGetsTheSameAnswer) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  std::vector<JobId> jobs;
  for (int i = 0; i < 20; ++i) jobs.push_back(engine.submit_gpus(1 + i % 2));
  Spread source(seconds(1), seconds(1'000));
  const World world = world_of(engine);
  const Forecast first = forecast(world, source, exact());
  const Forecast second = forecast(world, source, exact());
  Options other = exact();
  other.seed = 2;
  const Forecast third = forecast(world, source, other);
  bool differs = false;
  for (const JobId job : jobs) {
    EXPECT_EQ(estimate_of(first, job).p50, estimate_of(second, job).p50);
    EXPECT_EQ(estimate_of(first, job).p90, estimate_of(second, job).p90);
    differs = differs || estimate_of(first, job).p50 != estimate_of(third, job).p50;
  }
  EXPECT_TRUE(differs);
}

TEST(Forecast, PlacesFollowTheStarts) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  const JobId second = engine.submit({.gpus = 1, .priority = 1});
  const JobId third = engine.submit({.gpus = 1});
  const JobId first = engine.submit({.gpus = 1, .priority = 2});
  Spread source(minutes(1), {});
  const Forecast made = forecast(world_of(engine), source, exact());
  EXPECT_EQ(estimate_of(made, first).place, 1);
  EXPECT_EQ(estimate_of(made, second).place, 2);
  EXPECT_EQ(estimate_of(made, third).place, 3);
  EXPECT_EQ(estimate_of(made, third).p50, engine.now() + minutes(3));
}

TEST(Forecast, WhatNothingForeseenStartsIsStuck) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  const JobId held = engine.submit({.gpus = 1, .held = true});
  const JobId too_large = engine.submit({.gpus = 2});
  const JobId fits = engine.submit({.gpus = 1});
  Spread source(minutes(1), {});
  const Forecast made = forecast(world_of(engine), source, exact());
  for (const JobId job : {held, too_large}) {
    EXPECT_EQ(estimate_of(made, job).p50, kNever);
    EXPECT_TRUE(estimate_of(made, job).stuck);
  }
  EXPECT_EQ(estimate_of(made, fits).p50, engine.now() + minutes(1));
}

// Elements behind their array's bound, or not yet jobs, come as others end.
TEST(Forecast, WhoWaitsBehindItsArraysBoundIsNotStuck) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  engine.add_node("n1", {.gpus = 4});
  const JobId array = engine.submit(
      {.gpus = 1, .flow = {{.array = {{.first = 0, .last = 3, .step = 1}}, .array_at_once = 1}}});
  engine.settle();
  engine.cycle();
  const JobId first{array.value + 1}, third{array.value + 3};
  engine.started(first);
  engine.apply(HoldJob{.job = third, .held = true});
  Spread source(minutes(10), {});
  EXPECT_TRUE(estimate_of(forecast(world_of(engine), source, exact()), third).stuck);
  engine.apply(HoldJob{.job = third, .held = false});
  ASSERT_TRUE(engine.job(third).parked);
  const Forecast made = forecast(world_of(engine), source, exact());
  EXPECT_FALSE(estimate_of(made, third).stuck);
  EXPECT_EQ(estimate_of(made, third).p50, engine.now() + minutes(20));
  EXPECT_FALSE(estimate_of(made, array).stuck);
}

TEST(Forecast, ANodeThatIsAwayEndsNothing) {
  TestEngine engine;
  const NodeId away = engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  const JobId waits = engine.submit_gpus(1);
  engine.apply(NodeLeaseLost{.node = away});
  Spread source(minutes(1), {});
  EXPECT_TRUE(estimate_of(forecast(world_of(engine), source, exact()), waits).stuck);
}

TEST(Forecast, DependenciesAndBeginTimesAreWaitedFor) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 4});
  const JobId parent = engine.run({.gpus = 1});
  const JobId child = engine.submit({.gpus = 1, .flow = {{.dependencies = {{.parent = parent}}}}});
  const JobId late = engine.submit({.gpus = 1, .flow = {{.begin_after = hours(2)}}});
  Spread source(minutes(10), {});
  const Forecast made = forecast(world_of(engine), source, exact());
  EXPECT_EQ(estimate_of(made, child).p50, engine.now() + minutes(10));
  EXPECT_EQ(estimate_of(made, late).p50, engine.now() + hours(2));
}

TEST(Forecast, BeyondTheWorkLimitItIsLaterThanThat) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  std::vector<JobId> jobs;
  for (int i = 0; i < 50; ++i) jobs.push_back(engine.submit_gpus(1));
  Spread source(minutes(1), {});
  Options options = exact();
  options.work = 400;
  const Forecast made = forecast(world_of(engine), source, options);
  EXPECT_EQ(estimate_of(made, jobs.front()).p50, engine.now() + minutes(1));
  const Estimate& last = estimate_of(made, jobs.back());
  EXPECT_EQ(last.p50, kNever);
  EXPECT_FALSE(last.stuck);
  EXPECT_GT(last.later_than, engine.now() + minutes(1));
  EXPECT_EQ(last.place, 50);
}

TEST(Forecast, OutOfTimeItSaysHowManyRunsItMade) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  for (int i = 0; i < 200; ++i) engine.submit_gpus(1);
  Spread source(minutes(1), {});
  int asked = 0;
  const Forecast made = forecast(world_of(engine), source, exact(), [&] { return ++asked < 20; });
  EXPECT_GE(made.runs, 1U);
  EXPECT_LT(made.runs, 16U);
}

TEST(Forecast, AnArrayStartsWithItsFirstElement) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  const JobId array =
      engine.submit({.gpus = 1, .flow = {{.array = {{.first = 0, .last = 9}}, .array_at_once = 1}}});
  Spread source(minutes(1), {});
  EXPECT_EQ(estimate_of(forecast(world_of(engine), source, exact()), array).p50, engine.now() + minutes(1));
}

TEST(SampledRun, FollowsWhatIsKnown) {
  const predict::RunTimes known = predict::RunTimes::of({{1'000, 1}, {2'000, 1}, {3'000, 1}, {4'000, 1}});
  EXPECT_EQ(sampled_run(known, {}, {}, 0), seconds(1));
  EXPECT_EQ(sampled_run(known, {}, {}, 500), seconds(2));
  EXPECT_EQ(sampled_run(known, {}, {}, 999), seconds(4));
  EXPECT_EQ(sampled_run(known, {}, milliseconds(2'500), 0), seconds(3));
}

TEST(SampledRun, OfWhatNobodyKnowsHasAHeavyTailWithinTheLimit) {
  EXPECT_EQ(sampled_run({}, {}, {}, 500), kFirstRun * 2);
  EXPECT_EQ(sampled_run({}, {}, hours(1), 500), hours(2));
  EXPECT_EQ(sampled_run({}, minutes(20), {}, 900), minutes(20));
  // Past everything it goes on, if only just.
  EXPECT_EQ(sampled_run({}, minutes(20), minutes(21), 0), minutes(21) + milliseconds(1));
}

}  // namespace
}  // namespace gpusched::forecast
