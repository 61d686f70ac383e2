#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class AttemptTest : public ::testing::Test {
 protected:
  AttemptTest() : node(engine.add_node("n1", {.gpus = 4})) {}
  /// Runs a job to this outcome.
  JobId run_to(const Outcome& outcome, const Want& want = {.gpus = 1}) {
    const JobId job = engine.run(want);
    engine.ended(job, outcome);
    return job;
  }
  /// Brings a job that backs off to its next attempt.
  void run_again(JobId job) {
    engine.release_all();
    engine.advance(engine.job(job).not_before - engine.now());
    engine.cycle();
    engine.started(job);
  }
  TestEngine engine;
  NodeId node;
};

TEST_F(AttemptTest, AStartedAttemptRuns) {
  const JobId job = engine.run({.gpus = 1});
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  EXPECT_EQ(engine.job(job).reason, JobReason::kStarted);
  EXPECT_EQ(engine.job(job).started_at, engine.now());
}

TEST_F(AttemptTest, AStartSaidAgainChangesNothing) {
  const JobId job = engine.run({.gpus = 1});
  const Digest before = engine.digest();
  EXPECT_FALSE(engine.started(job).rejection.has_value());
  EXPECT_EQ(engine.digest(), before);
}

TEST_F(AttemptTest, AnEndSaidAgainIsOverAndChangesNothing) {
  const JobId job = run_to(exited(0));
  const Digest before = engine.digest();
  expect_rejected(engine.ended(job), RejectionCode::kAttemptNotFound);
  expect_rejected(engine.started(job), RejectionCode::kAttemptNotFound);
  EXPECT_EQ(engine.digest(), before);
}

TEST_F(AttemptTest, WordsFromAnotherNodeOfAnotherAttemptOrMemberAreNotFound) {
  const NodeId other = engine.add_node("n2", {});
  const JobId job = engine.run({.gpus = 1});
  expect_rejected(engine.apply(AttemptEnded{.job = job, .attempt = 1, .node = other}),
                  RejectionCode::kAttemptNotFound);
  expect_rejected(engine.apply(AttemptEnded{.job = job, .attempt = 2, .node = node}),
                  RejectionCode::kAttemptNotFound);
  expect_rejected(engine.apply(AttemptEnded{.job = job, .attempt = 1, .member = 1, .node = node}),
                  RejectionCode::kAttemptNotFound);
  expect_rejected(engine.apply(AttemptStarted{.job = job, .attempt = 1, .node = other}),
                  RejectionCode::kAttemptNotFound);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
}

TEST_F(AttemptTest, AnEndWithoutAStartIsTaken) {
  const JobId job = engine.submit_gpus(1);
  engine.cycle();
  engine.ended(job, exited(0));
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
}

TEST_F(AttemptTest, AtItsEndCpuAndMemoryAreFreeAndDevicesDrain) {
  const JobId job = engine.run({.gpus = 1, .cpu_milli = 1000, .memory_mb = 10});
  engine.ended(job);
  EXPECT_EQ(engine.node(node).cpu_milli_used, 0);
  EXPECT_EQ(engine.node(node).memory_mb_used, 0);
  EXPECT_TRUE(engine.node(node).attempts.empty());
  EXPECT_EQ(engine.device(node, 0).state, DeviceState::kDraining);
  EXPECT_EQ(engine.tenant(kDefaultTenant).usage, Amount{});
  EXPECT_TRUE(engine.state().attempts.empty());
}

TEST_F(AttemptTest, ATenantIsChargedGpuTimeFromPlacementToEnd) {
  const JobId job = engine.submit_gpus(2);
  engine.cycle();
  engine.advance(seconds(1));
  engine.started(job);
  engine.advance(seconds(9));
  engine.ended(job);
  EXPECT_EQ(engine.tenant(kDefaultTenant).gpu_ms, 2 * 10'000);
}

struct EndCase {
  Outcome outcome;
  JobState state;
  JobReason reason;
};

TEST_F(AttemptTest, EveryOutcomeEndsAJobWithoutRetriesInItsOwnWay) {
  const EndCase cases[] = {
      {exited(0), JobState::kCompleted, JobReason::kSucceeded},
      {exited(3), JobState::kFailed, JobReason::kExitCode},
      {{.cause = EndCause::kSignaled, .signal = 11, .detail = {}}, JobState::kFailed, JobReason::kSignal},
      {{.cause = EndCause::kStartFailed, .detail = "no such file"},
       JobState::kFailed,
       JobReason::kStartFailed},
      {{.cause = EndCause::kTimeout, .detail = {}}, JobState::kFailed, JobReason::kTimeout},
      {{.cause = EndCause::kStopped, .detail = {}}, JobState::kFailed, JobReason::kLost},
      {{.cause = EndCause::kShimLost, .detail = {}}, JobState::kFailed, JobReason::kLost},
      {{.cause = EndCause::kNodeLost, .detail = {}}, JobState::kFailed, JobReason::kLost},
      {{.cause = EndCause::kContactLost, .detail = {}}, JobState::kFailed, JobReason::kLost},
      {{.cause = EndCause::kNone, .detail = {}}, JobState::kFailed, JobReason::kLost},
  };
  for (const EndCase& each : cases) {
    const JobId job = run_to(each.outcome, {.gpus = 1, .retry = {.system_retries = -1}});
    engine.release_all();
    EXPECT_EQ(engine.state_of(job), each.state) << to_string(each.outcome.cause);
    EXPECT_EQ(engine.job(job).reason, each.reason) << to_string(each.outcome.cause);
    EXPECT_EQ(engine.job(job).last_cause, each.outcome.cause);
    EXPECT_EQ(engine.job(job).exit_code, each.outcome.exit_code);
    EXPECT_EQ(engine.job(job).signal, each.outcome.signal);
    EXPECT_EQ(engine.job(job).ended_at, engine.now());
  }
  EXPECT_EQ(engine.tenant(kDefaultTenant).jobs_successful, 1);
  EXPECT_EQ(engine.tenant(kDefaultTenant).jobs_failed, 9);
}

TEST_F(AttemptTest, AnExitCodeIsNotRetriedUnlessTheJobAsks) {
  EXPECT_EQ(engine.state_of(run_to(exited(1))), JobState::kFailed);
}

TEST_F(AttemptTest, ExitCodesAreRetriedAsOftenAsTheJobAsks) {
  const JobId job = run_to(exited(1), {.gpus = 1, .retry = {.exit_code_retries = 2}});
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).reason, JobReason::kBackoff);
  EXPECT_EQ(engine.job(job).exit_code, 1);
  run_again(job);
  engine.ended(job, {.cause = EndCause::kSignaled, .signal = 9, .detail = {}});
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  run_again(job);
  EXPECT_EQ(engine.job(job).attempt_count, 3u);
  engine.ended(job, exited(1));
  EXPECT_EQ(engine.state_of(job), JobState::kFailed);
}

TEST_F(AttemptTest, ALostShimIsRetriedByDefaultAndUpToItsLimit) {
  const JobId job = run_to({.cause = EndCause::kShimLost, .detail = {}});
  for (int32_t i = 1; i < limits::kSystemRetriesMax; ++i) {
    ASSERT_EQ(engine.state_of(job), JobState::kPending);
    run_again(job);
    engine.ended(job, {.cause = EndCause::kStartFailed, .detail = {}});
  }
  ASSERT_EQ(engine.state_of(job), JobState::kPending);
  run_again(job);
  engine.ended(job, {.cause = EndCause::kShimLost, .detail = {}});
  EXPECT_EQ(engine.state_of(job), JobState::kFailed);
  EXPECT_EQ(engine.job(job).attempt_count, static_cast<uint32_t>(limits::kSystemRetriesMax) + 1);
}

TEST_F(AttemptTest, AJobMayLimitOrForbidSystemRetries) {
  EXPECT_EQ(engine.state_of(run_to({.cause = EndCause::kShimLost, .detail = {}},
                                   {.gpus = 1, .retry = {.system_retries = -1}})),
            JobState::kFailed);
  const JobId once =
      run_to({.cause = EndCause::kShimLost, .detail = {}}, {.gpus = 1, .retry = {.system_retries = 1}});
  ASSERT_EQ(engine.state_of(once), JobState::kPending);
  run_again(once);
  engine.ended(once, {.cause = EndCause::kShimLost, .detail = {}});
  EXPECT_EQ(engine.state_of(once), JobState::kFailed);
}

TEST_F(AttemptTest, ExitAndSystemFailuresAreCountedApart) {
  const JobId job =
      run_to({.cause = EndCause::kShimLost, .detail = {}}, {.gpus = 1, .retry = {.exit_code_retries = 1}});
  run_again(job);
  engine.ended(job, exited(1));
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).exit_failures, 1);
  EXPECT_EQ(engine.job(job).system_failures, 1);
}

TEST_F(AttemptTest, BackOffDoublesFromOneSecondUpToItsLimit) {
  const JobId job = run_to(exited(1), {.gpus = 1, .retry = {.exit_code_retries = 12}});
  Duration expected = limits::kBackoffFirst;
  for (int i = 0; i < 11; ++i) {
    EXPECT_EQ(engine.job(job).not_before - engine.now(), expected);
    expected = std::min(expected * 2, limits::kBackoffMax);
    run_again(job);
    engine.ended(job, exited(1));
  }
  EXPECT_EQ(expected, limits::kBackoffMax);
}

TEST_F(AttemptTest, AJobThatBacksOffIsOutOfLineUntilItsTime) {
  const JobId job = run_to(exited(1), {.gpus = 1, .retry = {.exit_code_retries = 1}});
  engine.release_all();
  EXPECT_TRUE(engine.state().line.empty());
  EXPECT_EQ(engine.state().waiting_count(), 1);
  EXPECT_TRUE(engine.cycle().empty());
  engine.advance(limits::kBackoffFirst - milliseconds(1));
  EXPECT_TRUE(engine.cycle().empty());
  engine.advance(milliseconds(1));
  EXPECT_EQ(engine.job(job).reason, JobReason::kRetry);
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(AttemptTest, ARetryKeepsItsPlaceInLine) {
  const JobId job = run_to(exited(1), {.gpus = 4, .retry = {.exit_code_retries = 1}});
  engine.release_all();
  const JobId later = engine.submit_gpus(4);
  engine.advance(limits::kBackoffFirst);
  const std::vector<PlanGroup> placed = engine.cycle();
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].job, job);
  EXPECT_EQ(engine.state_of(later), JobState::kPending);
}

TEST_F(AttemptTest, OverItsMaximumRuntimeAJobIsStoppedAndFails) {
  const JobId job = engine.run({.gpus = 1, .max_runtime = minutes(1)});
  engine.advance(minutes(1));
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kNone);
  engine.advance(limits::kRuntimeSlack);
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kTimeout);
  engine.ended(job, {.cause = EndCause::kStopped, .detail = {}});
  EXPECT_EQ(engine.state_of(job), JobState::kFailed);
  EXPECT_EQ(engine.job(job).reason, JobReason::kTimeout);
  EXPECT_TRUE(engine.state().timers.empty());
}

TEST_F(AttemptTest, ATimeoutIsNeverRetried) {
  const JobId job = run_to({.cause = EndCause::kTimeout, .detail = {}},
                           {.gpus = 1, .retry = {.exit_code_retries = 5}, .max_runtime = minutes(1)});
  EXPECT_EQ(engine.state_of(job), JobState::kFailed);
  EXPECT_TRUE(engine.state().timers.empty());
}

TEST_F(AttemptTest, AnEndInTimeTakesItsTimerAlong) {
  run_to(exited(0), {.gpus = 1, .max_runtime = minutes(1)});
  EXPECT_TRUE(engine.state().timers.empty());
}

TEST_F(AttemptTest, AMaximumRuntimeCountsFromEachAttemptsStart) {
  const JobId job =
      run_to(exited(1), {.gpus = 1, .retry = {.exit_code_retries = 1}, .max_runtime = minutes(1)});
  run_again(job);
  engine.advance(minutes(1));
  EXPECT_EQ(engine.state().find_attempt(job, 2)->stop, StopReason::kNone);
  engine.advance(limits::kRuntimeSlack);
  EXPECT_EQ(engine.state().find_attempt(job, 2)->stop, StopReason::kTimeout);
}

TEST_F(AttemptTest, ACancelledJobIsNotTimedOutAsWell) {
  const JobId job = engine.run({.gpus = 1, .max_runtime = minutes(1)});
  engine.apply(CancelJob{.job = job});
  engine.advance(minutes(2));
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kCancel);
  engine.ended(job, {.cause = EndCause::kStopped, .detail = {}});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
}

TEST_F(AttemptTest, AnExitCodeWhileItIsBeingCancelledIsNotRetried) {
  const JobId job = engine.run({.gpus = 1, .retry = {.exit_code_retries = 3}});
  engine.apply(CancelJob{.job = job});
  engine.ended(job, exited(143));
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
}

TEST_F(AttemptTest, AStartReportedAfterACancelRunsUntilItsEnd) {
  const JobId job = engine.submit_gpus(1);
  engine.cycle();
  engine.apply(CancelJob{.job = job});
  engine.started(job);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.ended(job, {.cause = EndCause::kStopped, .detail = {}});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
}

TEST(Checkpoint, CountsWhenItIsOfThisAttemptAndNoOlderThanTheLast) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  const auto save = [&](Duration age) {
    return engine.apply(CheckpointSaved{.job = job, .attempt = 1, .node = node, .age = age});
  };
  engine.advance(minutes(10));
  expect_rejected(save(minutes(11)), RejectionCode::kStale);  // Before it started.
  expect_rejected(save(Duration{} - seconds(1)),
                  RejectionCode::kStale);  // It would be spared for what is to come.
  EXPECT_FALSE(engine.job(job).extras->saved_at.valid());
  EXPECT_FALSE(save(minutes(2)).rejection.has_value());
  EXPECT_EQ(engine.job(job).extras->saved_at, engine.now() - minutes(2));
  expect_rejected(save(minutes(3)), RejectionCode::kStale);
  EXPECT_FALSE(save(Duration{}).rejection.has_value());
  EXPECT_EQ(engine.job(job).extras->saved_at, engine.now());
}

}  // namespace
}  // namespace gpusched
