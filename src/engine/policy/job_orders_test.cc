#include "engine/policy/job_orders.h"

#include <gtest/gtest.h>

#include "engine/planner/lines/job_lines.h"
#include "engine/policy/policies.h"
#include "engine/testing/test_engine.h"

namespace gpusched::policy {
namespace {

using testing::TestEngine;

/// Says what the test says, and counts how often it was asked.
class SaidRunTimes final : public RunTimes {
 public:
  std::string_view name() const override { return "said"; }
  Duration to_pass(const State&, const Job&, Time) const override { return expected; }
  Duration of_running(const State&, const Job&, Duration, Time) const override { return expected; }
  Duration to_order(const State&, const Job& job, Duration, Time) const override {
    ++asked;
    const auto own = of_job.find(job.id);
    return own == of_job.end() ? expected : own->second;
  }

  Duration expected = hours(1);
  std::map<JobId, Duration> of_job;
  mutable int asked = 0;
};

SchedulingPolicy with_order(const char* name, Duration overtaking = {}) {
  return {.job_order = name, .attained_levels = {60, 600}, .overtaking = overtaking};
}

TEST(AttainedLevel, IsHowManyThresholdsWereReached) {
  const std::vector<int64_t> levels = {60, 600};
  EXPECT_EQ(attained_level(levels, 0), 0);
  EXPECT_EQ(attained_level(levels, 59'999), 0);
  EXPECT_EQ(attained_level(levels, 60'000), 1);
  EXPECT_EQ(attained_level(levels, 599'999), 1);
  EXPECT_EQ(attained_level(levels, 600'000), 2);
  EXPECT_EQ(attained_level({}, INT64_MAX), 0);
}

TEST(ShortestFirst, WhatShouldBeOverHasARestStill) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const JobId id = engine.run({.gpus = 1, .retry = {.exit_code_retries = 1}, .max_runtime = hours(3)});
  engine.advance(hours(2));
  engine.ended(id, testing::exited(1));
  ASSERT_EQ(engine.job(id).attained_gpu_ms, hours(2).ms());
  SaidRunTimes run_times;
  // Expected to take an hour, it had two: its limit counts.
  EXPECT_EQ(ShortestFirst().rank(engine.state(), engine.job(id), run_times, engine.now()), -hours(1).ms());
  run_times.expected = hours(2) + minutes(30);
  EXPECT_EQ(ShortestFirst().rank(engine.state(), engine.job(id), run_times, engine.now()), -minutes(30).ms());
}

TEST(ShortestFirst, OfAVastJobIsARank) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 8});
  const JobId id = engine.submit({.gpus = 8});
  SaidRunTimes run_times;
  run_times.expected = Duration{INT64_MAX};
  const int64_t rank = ShortestFirst().rank(engine.state(), engine.job(id), run_times, engine.now());
  EXPECT_LT(rank, 0);
  EXPECT_GT(rank, JobOrder::kLast);
}

/// A line of waiting jobs of one class beside an engine without nodes.
class Lines : public ::testing::Test {
 protected:
  void choose(const SchedulingPolicy& chosen) {
    policies_ = policies_for(chosen);
    auto said = std::make_unique<SaidRunTimes>();
    said_ = said.get();
    policies_.run_times = std::move(said);
    lines_.reset(engine_.state(), policies_, engine_.now());
  }
  JobId submit(Duration limit = {}) {
    const JobId id = engine_.submit({.gpus = 1, .max_runtime = limit});
    lines_.observe(engine_.state(), id);
    return id;
  }
  JobId front() { return lines_.of(engine_.state(), 0).front().job; }

  TestEngine engine_;
  PolicySet policies_;
  SaidRunTimes* said_ = nullptr;
  JobLines lines_;
};

TEST_F(Lines, OfTheStatesOrderAreTheStatesOwn) {
  choose(with_order("priority_aging"));
  submit();
  EXPECT_EQ(&lines_.of(engine_.state(), 0), &engine_.state().classes[0].waiting);
  EXPECT_EQ(said_->asked, 0);
}

TEST_F(Lines, AreRankedAnewByWhatIsLearned) {
  choose(with_order("shortest"));
  const JobId first = submit();
  const JobId second = submit();
  EXPECT_EQ(front(), first);
  said_->of_job[second] = minutes(1);
  EXPECT_EQ(lines_.refresh(engine_.state(), engine_.now()), std::vector<uint32_t>{0});
  EXPECT_EQ(front(), second);
  EXPECT_TRUE(lines_.refresh(engine_.state(), engine_.now()).empty());
}

TEST_F(Lines, AskForSoManyRunTimesAtATimeAndGoByLimitsBeyond) {
  choose(with_order("shortest"));
  for (int i = 0; i < 1000; ++i) submit(hours(9));
  EXPECT_LT(said_->asked, 500);
  const int before = said_->asked;
  const JobId last = submit(minutes(10));
  EXPECT_EQ(said_->asked, before);
  EXPECT_EQ(front(), last) << "its limit is shorter than what is expected of the others";
  said_->of_job[last] = hours(20);
  for (int i = 0; i < 1000; ++i) lines_.refresh(engine_.state(), engine_.now());
  EXPECT_LT(said_->asked, before + 50) << "one after the other, however often";
  Time now = engine_.now();
  for (int i = 0; i < 1000; ++i) lines_.refresh(engine_.state(), now = now + milliseconds(20));
  EXPECT_NE(front(), last) << "its turn to be asked for came";
}

TEST_F(Lines, AfterAWhileWaitingCountsMore) {
  choose(with_order("shortest", hours(1)));
  said_->expected = hours(5);
  const JobId old = submit();
  engine_.advance(minutes(59));
  const JobId fresh = submit();
  said_->of_job[fresh] = minutes(1);
  lines_.refresh(engine_.state(), engine_.now());
  EXPECT_EQ(front(), fresh);
  engine_.advance(minutes(1));
  EXPECT_FALSE(lines_.refresh(engine_.state(), engine_.now()).empty());
  EXPECT_EQ(front(), old);
  // A line that is made again agrees.
  JobLines again;
  again.reset(engine_.state(), policies_, engine_.now());
  EXPECT_EQ(again.of(engine_.state(), 0).front(), lines_.of(engine_.state(), 0).front());
}

TEST_F(Lines, WhoLeftIsNotThere) {
  choose(with_order("deadline"));
  const JobId first = submit();
  const JobId second = submit();
  engine_.apply(CancelJob{.job = first});
  // Even before it was observed.
  EXPECT_EQ(front(), second);
  lines_.observe(engine_.state(), first);
  EXPECT_EQ(lines_.of(engine_.state(), 0).size(), 1u);
}

}  // namespace
}  // namespace gpusched::policy
