#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

// Hold, release, update and requeue.
namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class JobControlTest : public ::testing::Test {
 protected:
  Applied hold(JobId job, bool held = true) { return engine.apply(HoldJob{.job = job, .held = held}); }
  Applied set_priority(JobId job, int32_t priority) {
    return engine.apply(UpdateJob{.job = job, .given = kJobPriority, .priority = priority});
  }
  Applied set_runtime(JobId job, Duration limit) {
    return engine.apply(UpdateJob{.job = job, .given = kJobMaxRuntime, .max_runtime = limit});
  }
  TestEngine engine;
  NodeId node = engine.add_node("n1", {.gpus = 2});
};

TEST_F(JobControlTest, AHeldJobIsNotPlacedUntilItIsReleased) {
  const JobId job = engine.submit_gpus(1);
  hold(job);
  EXPECT_EQ(engine.job(job).reason, JobReason::kHeld);
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.state().waiting_count(), 1);
  hold(job, false);
  EXPECT_EQ(engine.job(job).reason, JobReason::kSubmitted);
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(JobControlTest, AJobMayBeSubmittedHeld) {
  const JobId job = engine.submit({.gpus = 1, .held = true});
  EXPECT_EQ(engine.job(job).reason, JobReason::kHeld);
  EXPECT_TRUE(engine.cycle().empty());
  hold(job, false);
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(JobControlTest, HoldingTwiceIsHoldingOnce) {
  const JobId job = engine.submit_gpus(1);
  hold(job);
  const Digest before = engine.digest();
  EXPECT_FALSE(hold(job).rejection.has_value());
  EXPECT_EQ(engine.digest(), before);
}

TEST_F(JobControlTest, AHeldJobCanBeCancelled) {
  const JobId job = engine.submit_gpus(1);
  hold(job);
  engine.apply(CancelJob{.job = job});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
  EXPECT_EQ(engine.state().pending_backoff, 0);
}

TEST_F(JobControlTest, ABackOffThatEndsWhileHeldLeavesTheJobHeld) {
  const JobId job = engine.run({.gpus = 1, .retry = {.exit_code_retries = 1}});
  engine.ended(job, exited(3));
  engine.release_all();
  hold(job);
  engine.advance(minutes(1));
  EXPECT_EQ(engine.job(job).reason, JobReason::kHeld);
  EXPECT_TRUE(engine.cycle().empty());
  hold(job, false);
  EXPECT_EQ(engine.job(job).reason, JobReason::kRetry);
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(JobControlTest, ReleasedDuringItsBackOffItStillWaitsForItsEnd) {
  const JobId job = engine.run({.gpus = 1, .retry = {.exit_code_retries = 1}});
  engine.ended(job, exited(3));
  engine.release_all();
  hold(job);
  hold(job, false);
  EXPECT_EQ(engine.job(job).reason, JobReason::kBackoff);
  EXPECT_TRUE(engine.cycle().empty());
  engine.advance(minutes(1));
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(JobControlTest, ARunningJobCannotBeHeldNorChangeItsPriority) {
  const JobId job = engine.run({.gpus = 1});
  expect_rejected(hold(job), RejectionCode::kJobNotWaiting);
  expect_rejected(set_priority(job, 7), RejectionCode::kJobNotWaiting);
}

TEST_F(JobControlTest, AFinishedJobCannotBeChanged) {
  const JobId job = engine.run({.gpus = 1});
  engine.finish(job);
  expect_rejected(hold(job), RejectionCode::kJobFinished);
  expect_rejected(set_runtime(job, seconds(1)), RejectionCode::kJobFinished);
  expect_rejected(engine.apply(RequeueJob{.job = job}), RejectionCode::kJobFinished);
}

TEST_F(JobControlTest, AnotherTenantsJobIsNotFound) {
  const TenantId other = engine.add_tenant("other");
  const JobId job = engine.submit_gpus(1);
  expect_rejected(engine.apply(HoldJob{.job = job, .tenant = other, .held = true}),
                  RejectionCode::kJobNotFound);
  expect_rejected(engine.apply(UpdateJob{.job = job, .tenant = other}), RejectionCode::kJobNotFound);
  expect_rejected(engine.apply(RequeueJob{.job = job, .tenant = other}), RejectionCode::kJobNotFound);
}

TEST_F(JobControlTest, AHigherPriorityMovesAJobAhead) {
  const JobId first = engine.submit_gpus(2);
  const JobId second = engine.submit_gpus(2);
  set_priority(second, 50);
  EXPECT_EQ(engine.job(second).priority, 50);
  engine.cycle();
  EXPECT_EQ(engine.state_of(second), JobState::kScheduled);
  EXPECT_EQ(engine.state_of(first), JobState::kPending);
}

TEST_F(JobControlTest, ABlockedClassSeesItsNewHead) {
  const JobId running = engine.run({.gpus = 2});
  const JobId first = engine.submit_gpus(2);
  const JobId second = engine.submit_gpus(2);
  engine.cycle();
  set_priority(second, 50);
  hold(first);
  engine.finish(running);
  engine.cycle();
  EXPECT_EQ(engine.state_of(second), JobState::kScheduled);
}

TEST_F(JobControlTest, AShorterLimitStopsARunningJobSooner) {
  const JobId job = engine.run({.gpus = 1, .max_runtime = hours(1)});
  set_runtime(job, seconds(10));
  engine.advance(seconds(11) + limits::kRuntimeSlack);
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kTimeout);
}

TEST_F(JobControlTest, ALongerLimitOrNoneLetsItGoOn) {
  const JobId job = engine.run({.gpus = 1, .max_runtime = seconds(10)});
  set_runtime(job, seconds(100));
  engine.advance(seconds(50));
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kNone);
  set_runtime(job, Duration{});
  engine.advance(hours(1));
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kNone);
  engine.finish(job);
  EXPECT_TRUE(engine.state().timers.empty());
}

TEST_F(JobControlTest, ALimitGivenLateCountsFromTheStart) {
  const JobId job = engine.run({.gpus = 1});
  engine.advance(seconds(60));
  set_runtime(job, seconds(10));
  engine.advance(Duration{});
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kTimeout);
}

TEST_F(JobControlTest, ARequeuedJobRunsAgainWithoutSpendingARetry) {
  const JobId job = engine.run({.gpus = 1, .retry = {.system_retries = -1}});
  engine.apply(RequeueJob{.job = job});
  EXPECT_EQ(engine.count_events<StopRequested>(), 1);
  engine.ended(job, {.cause = EndCause::kStopped});
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).system_failures, 0);
  engine.release_all();
  engine.advance(minutes(1));
  engine.cycle();
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
}

TEST_F(JobControlTest, AJobThatCompletesWhileItIsRequeuedIsCompleted) {
  const JobId job = engine.run({.gpus = 1});
  engine.apply(RequeueJob{.job = job});
  engine.ended(job, exited(0));
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
}

TEST_F(JobControlTest, ACancelAfterARequeueWins) {
  const JobId job = engine.run({.gpus = 1});
  engine.apply(RequeueJob{.job = job});
  engine.apply(CancelJob{.job = job});
  engine.ended(job, {.cause = EndCause::kStopped});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
}

TEST_F(JobControlTest, WhatWaitsOrIsBeingCancelledIsNotRequeued) {
  const JobId waiting = engine.submit({.gpus = 1, .held = true});
  expect_rejected(engine.apply(RequeueJob{.job = waiting}), RejectionCode::kJobNotPlaced);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(CancelJob{.job = job});
  expect_rejected(engine.apply(RequeueJob{.job = job}), RejectionCode::kStale);
}

TEST_F(JobControlTest, MemoryIsTheJobsOwnFaultAndCountsAsAnExitCode) {
  const JobId job = engine.run({.gpus = 1});
  engine.ended(job, {.cause = EndCause::kOutOfMemory});
  EXPECT_EQ(engine.state_of(job), JobState::kFailed);
  EXPECT_EQ(engine.job(job).reason, JobReason::kOutOfMemory);
}

TEST_F(JobControlTest, AWaitingJobCannotBeChangedToMoreThanItsTenantMayEverHave) {
  Limits limits;
  limits.set(Resource::kGpus, 2);
  const TenantId tenant = engine.add_tenant("t", {}, limits);
  const JobId job = engine.submit({.gpus = 1, .tenant = tenant});
  std::vector<Part> parts = engine.state().class_of(engine.job(job)).parts;
  const auto change_to = [&](int32_t gpus) {
    parts.front().gpu_count = gpus;
    return engine.apply(UpdateJob{.job = job, .given = kJobParts, .parts = parts});
  };
  const Applied refused = change_to(3);
  expect_rejected(refused, RejectionCode::kQuotaExceeded);
  EXPECT_EQ(refused.rejection->tenant, tenant);
  EXPECT_FALSE(change_to(2).rejection.has_value());
}

TEST_F(JobControlTest, ANewPriorityKeepsTheJobsAge) {
  const JobId old = engine.submit({.gpus = 2, .priority = 50});
  const int64_t key = engine.job(old).order_key;
  engine.advance(hours(5));
  set_priority(old, 60);
  EXPECT_GT(engine.job(old).order_key, key);
  set_priority(old, 50);
  EXPECT_EQ(engine.job(old).order_key, key) << "it waits since it was submitted";
  EXPECT_NE(engine.job(engine.submit({.gpus = 2, .priority = 50})).order_key, key) << "or nothing is shown";
}

}  // namespace
}  // namespace gpusched
