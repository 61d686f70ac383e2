// An element of an array that somebody touches before its turn: it keeps what was said, and waits for its
// turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::TestEngine;
using testing::Want;

class ArrayTurns : public ::testing::Test {
 protected:
  ArrayTurns() {
    engine_.apply(Configure{.config = {.feature_level = kFeatureLevel}});
    engine_.add_node("n1", {.cpu_milli = 64'000});
  }

  JobId submit_array(JobFlow flow, bool held = false) {
    flow.array = {{.first = 0, .last = 9}};
    return engine_.submit({.cpu_milli = 1'000, .held = held, .flow = {flow}});
  }
  JobId element(JobId array, int64_t position) const {
    return engine_.state().find_array(array)->element(position);
  }
  /// Everybody who can be touched says something about it.
  void touch(JobId job) {
    EXPECT_FALSE(
        engine_.apply(UpdateJob{.job = job, .given = kJobMaxRuntime, .max_runtime = hours(1)}).rejection);
    engine_.apply(HoldJob{.job = job, .held = true});
    engine_.apply(HoldJob{.job = job, .held = false});
  }
  bool waits(JobId job) {
    engine_.settle();
    engine_.cycle();
    return engine_.state_of(job) == JobState::kPending;
  }

  TestEngine engine_;
};

TEST_F(ArrayTurns, WhatItsArrayWaitsForATouchedElementWaitsForToo) {
  const JobId parent = engine_.submit({.gpus = 1});
  const JobId array = submit_array({.dependencies = {{.parent = parent, .kind = DependencyKind::kAfterAny}}});
  touch(element(array, 3));
  EXPECT_TRUE(waits(element(array, 3)));
  engine_.apply(CancelJob{.job = parent});
  EXPECT_FALSE(waits(element(array, 3)));
  EXPECT_EQ(engine_.job(element(array, 3)).max_runtime, hours(1));
}

TEST_F(ArrayTurns, ATouchedElementOfAHeldArrayIsHeldBack) {
  const JobId array = submit_array({}, true);
  touch(element(array, 0));
  EXPECT_TRUE(waits(element(array, 0)));
  engine_.apply(HoldJob{.job = array, .held = false});
  EXPECT_FALSE(waits(element(array, 0)));
}

TEST_F(ArrayTurns, ATouchedElementDoesNotBeginBeforeItsArray) {
  const JobId array = submit_array({.begin_after = hours(2)});
  touch(element(array, 9));
  engine_.advance(hours(1));
  EXPECT_TRUE(waits(element(array, 9)));
  engine_.advance(hours(1));
  EXPECT_FALSE(waits(element(array, 9)));
}

TEST_F(ArrayTurns, TouchedElementsStayWithinTheLimitAndGoInTheirOrder) {
  const JobId array = submit_array({.array_at_once = 2});
  for (int64_t position = 0; position < 10; position += 3) touch(element(array, position));
  std::vector<JobId> order;
  for (int round = 0; round < 10; ++round) {
    engine_.settle();
    for (const PlanGroup& group : engine_.cycle()) {
      engine_.started(group.job);
      order.push_back(group.job);
    }
    const JobArray* known = engine_.state().find_array(array);
    ASSERT_LE(known->live.size(), 2u);
    if (!known->live.empty()) engine_.ended(*known->live.begin());
  }
  EXPECT_EQ(order.size(), 10u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  engine_.settle();
  EXPECT_EQ(engine_.state_of(array), JobState::kCompleted);
}

TEST_F(ArrayTurns, AHeldElementLetsTheOthersPass) {
  const JobId array = submit_array({.array_at_once = 1});
  engine_.apply(HoldJob{.job = element(array, 0), .held = true});
  EXPECT_TRUE(waits(element(array, 0)));
  EXPECT_EQ(engine_.state_of(element(array, 1)), JobState::kScheduled);
  for (int64_t position = 1; position < 10; ++position) {
    engine_.ended(element(array, position));
    engine_.settle();
    engine_.cycle();
  }
  EXPECT_EQ(engine_.state_of(array), JobState::kPending);
  engine_.apply(HoldJob{.job = element(array, 0), .held = false});
  EXPECT_FALSE(waits(element(array, 0)));
}

TEST_F(ArrayTurns, ItsArraysEndIsItsOwn) {
  const JobId cancelled = submit_array({.begin_after = hours(2)});
  touch(element(cancelled, 3));
  engine_.apply(CancelJob{.job = cancelled});
  engine_.settle();
  EXPECT_EQ(engine_.state_of(element(cancelled, 3)), JobState::kCancelled);
  EXPECT_EQ(engine_.state_of(cancelled), JobState::kCancelled);
  const JobId parent = engine_.submit({.gpus = 1});
  const JobId waiting = submit_array({.dependencies = {{.parent = parent}}});
  touch(element(waiting, 3));
  engine_.apply(CancelJob{.job = parent});
  engine_.settle();
  EXPECT_EQ(engine_.state_of(element(waiting, 3)), JobState::kCancelled);
  EXPECT_EQ(engine_.job(element(waiting, 3)).reason, JobReason::kDependency);
  EXPECT_EQ(engine_.state_of(waiting), JobState::kCancelled);
  EXPECT_EQ(engine_.state().waiting_count(), 0);
}

TEST(ArrayTurnsOfOldJournals, ATouchedElementRanAtOnce) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = 5}});
  engine.add_node("n1", {.cpu_milli = 64'000});
  const JobId array = engine.submit(
      {.cpu_milli = 1'000, .flow = {JobFlow{.begin_after = hours(2), .array = {{.first = 0, .last = 9}}}}});
  const JobId element = engine.state().find_array(array)->element(3);
  engine.apply(UpdateJob{.job = element, .given = kJobMaxRuntime, .max_runtime = hours(1)});
  engine.cycle();
  EXPECT_EQ(engine.state_of(element), JobState::kScheduled);
}

}  // namespace
}  // namespace gpusched
