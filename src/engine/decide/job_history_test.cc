#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/limits.h"
#include "engine/testing/test_engine.h"
#include "model/job.h"

// Timelines of jobs, and what is noted of who asked for what.
namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class JobTimeline : public ::testing::Test {
 protected:
  JobTimeline() { configure(kFeatureLevel); }
  void configure(int64_t level) {
    EngineConfig config = engine.state().config;
    config.feature_level = level;
    engine.apply(Configure{.config = config});
  }
  std::vector<JobHistoryEntry> entries(JobId job) { return engine.job(job).timeline().entries; }
  /// The words of its timeline, with who asked: "placed started ended finished".
  std::string words(JobId job) {
    std::string text;
    for (const JobHistoryEntry& entry : entries(job)) {
      text += (text.empty() ? "" : " ") + std::string(to_string(entry.step));
      if (!entry.by.empty()) text += "(" + entry.by + ")";
    }
    return text;
  }
  void fail_start(JobId job) {
    engine.advance(minutes(10));
    engine.cycle();
    engine.ended(job, {.cause = EndCause::kStartFailed, .detail = "no user 'x'", .keep_detail = true});
    engine.release_all();
  }
  TestEngine engine;
  NodeId node = engine.add_node("n1", {.gpus = 2});
};

TEST_F(JobTimeline, ALifeIsTold) {
  const JobId job = engine.run({.gpus = 1});
  engine.finish(job);
  EXPECT_EQ(words(job), "placed started ended finished");
  const std::vector<JobHistoryEntry> told = entries(job);
  EXPECT_EQ(told[0].node, node);
  EXPECT_EQ(told[0].attempt, 1u);
  EXPECT_EQ(told[2].cause, EndCause::kExited);
  EXPECT_EQ(told[3].state, JobState::kCompleted);
}

TEST_F(JobTimeline, WhoSubmittedAJobIsKeptWithItAndWithItsElements) {
  const JobRequest one{.parts = {Part{.cpu_milli = 1}}};
  JobRequest array = one;
  array.flow.push_back({.array = {{.first = 0, .last = 2}}});
  const Applied applied =
      engine.apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {one, one, array}, .by = "ada@login"});
  const uint64_t first = applied.first_id;
  EXPECT_EQ(engine.job(JobId{first}).submitted_by.view(), "ada@login");
  EXPECT_EQ(engine.job(JobId{first + 1}).submitted_by.identity(),
            engine.job(JobId{first}).submitted_by.identity())
      << "jobs of one submission share the text";
  engine.apply(HoldJob{.job = JobId{first + 3}, .held = true});
  EXPECT_EQ(engine.job(JobId{first + 3}).submitted_by.view(), "ada@login");
}

TEST_F(JobTimeline, BeforeFeatureLevelEightNobodyKnowsWhoSubmittedAJob) {
  configure(7);
  const Applied applied = engine.apply(
      SubmitJobs{.tenant = kDefaultTenant, .jobs = {{.parts = {Part{.cpu_milli = 1}}}}, .by = "ada@login"});
  EXPECT_TRUE(engine.job(JobId{applied.first_id}).submitted_by.empty());
}

TEST_F(JobTimeline, WhoSubmitsHasAShortName) {
  SubmitJobs command{.tenant = kDefaultTenant, .by = std::string(limits::kNameBytesMax, 'x')};
  EXPECT_TRUE(well_formed(command));
  command.by += 'x';
  EXPECT_FALSE(well_formed(command));
}

constexpr Usage kUsed{
    .peak_memory_bytes = 300, .cpu_time = seconds(4), .gpu_busy_ms = 1, .gpu_watched_ms = 2};

Outcome with_usage(Outcome outcome) {
  outcome.usage = kUsed;
  return outcome;
}

TEST_F(JobTimeline, WhatEachAttemptUsedIsKept) {
  const JobId job = engine.run({.gpus = 1});
  EXPECT_TRUE(engine.job(job).usage.empty());
  engine.apply(RequeueJob{.job = job});
  engine.ended(job, with_usage({.cause = EndCause::kStopped}));
  EXPECT_EQ(engine.job(job).last_usage().total, kUsed);
  engine.release_all();
  engine.advance(minutes(1));
  engine.cycle();
  EXPECT_EQ(engine.job(job).last_usage(), AttemptUsage{}) << "its last attempt is another one";
  engine.started(job);
  engine.finish(job);
  EXPECT_EQ(engine.job(job).last_usage(), AttemptUsage{}) << "its node told nothing";
  EXPECT_EQ(entries(job)[2].usage.total, kUsed);
  EXPECT_EQ(words(job), "placed started ended requeued placed started ended finished");
  EXPECT_EQ(entries(job)[6].usage, AttemptUsage{});
}

TEST_F(JobTimeline, AGangsMembersAddUpAndThoseThatToldNothingAreCounted) {
  engine.add_node("n2", {.gpus = 2});
  const JobId job = engine.submit({.gpus = 1, .members = 3});
  engine.cycle();
  engine.started(job);
  const std::vector<NodeId> nodes = engine.member_nodes(job);
  ASSERT_EQ(nodes.size(), 3u);
  for (uint32_t member = 0; member < 3; ++member) {
    Outcome outcome{.cause = EndCause::kExited};
    if (member != 1) outcome.usage = kUsed;
    engine.apply(
        AttemptEnded{.job = job, .attempt = 1, .member = member, .node = nodes[member], .outcome = outcome});
  }
  const AttemptUsage used = engine.job(job).last_usage();
  EXPECT_EQ(used.total.peak_memory_bytes, 300);
  EXPECT_EQ(used.total.cpu_time, seconds(8));
  EXPECT_EQ(used.total.gpu_watched_ms, 4);
  EXPECT_EQ(used.members_unknown, 1u);
}

TEST_F(JobTimeline, UsageThatNoNodeCouldMeanIsRefused) {
  for (const Usage& usage : {Usage{.peak_memory_bytes = -1}, Usage{.cpu_time = Duration{-1}},
                             Usage{.gpu_busy_ms = limits::kUsageMax + 1}, Usage{.gpu_watched_ms = INT64_MAX},
                             Usage{.peak_gpu_memory_mb = -1}}) {
    AttemptEnded ended{.job = JobId{1}, .attempt = 1, .outcome = {.cause = EndCause::kExited}};
    EXPECT_TRUE(well_formed(ended));
    ended.outcome.usage = usage;
    EXPECT_FALSE(well_formed(ended));
  }
}

TEST_F(JobTimeline, WhoAskedIsNotedBeforeWhatFollows) {
  const JobId job = engine.submit_gpus(1);
  engine.apply(HoldJob{.job = job, .held = true, .by = "anna"});
  engine.apply(UpdateJob{.job = job, .given = kJobPriority, .priority = 5, .by = "ops"});
  engine.apply(HoldJob{.job = job, .held = false, .by = "ops"});
  engine.apply(CancelJob{.job = job, .by = "token"});
  EXPECT_EQ(
      words(job),
      "hold_requested(anna) change_requested(ops) release_requested(ops) cancel_requested(token) finished");
  EXPECT_EQ(engine.job(job).state, JobState::kCancelled);
}

TEST_F(JobTimeline, WhoeverCancelsFirstIsNamed) {
  const JobId job = engine.run({.gpus = 1});
  engine.apply(CancelJob{.job = job, .by = "anna"});
  engine.apply(CancelJob{.job = job, .by = "bert"});
  EXPECT_EQ(words(job), "placed started cancel_requested(anna)");
}

TEST_F(JobTimeline, EveryAttemptIsTold) {
  const JobId job = engine.run({.gpus = 1});
  engine.apply(RequeueJob{.job = job, .by = "ops"});
  engine.ended(job, {.cause = EndCause::kStopped});
  engine.release_all();
  engine.advance(minutes(1));
  engine.cycle();
  engine.started(job);
  EXPECT_EQ(words(job), "placed started requeue_requested(ops) ended requeued placed started");
  EXPECT_EQ(entries(job).back().attempt, 2u);
  EXPECT_TRUE(entries(job)[4].at.valid());
}

TEST_F(JobTimeline, ARefusedCommandLeavesNoTrace) {
  const JobId job = engine.submit_gpus(1);
  expect_rejected(engine.apply(RequeueJob{.job = job, .by = "ops"}), RejectionCode::kJobNotPlaced);
  EXPECT_EQ(words(job), "");
}

TEST_F(JobTimeline, OlderStatesHaveNone) {
  configure(6);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(CancelJob{.job = job, .by = "anna"});
  engine.ended(job, with_usage({.cause = EndCause::kStopped}));
  EXPECT_TRUE(engine.job(job).history.empty());
  EXPECT_TRUE(engine.job(job).usage.empty());
}

TEST_F(JobTimeline, FailedStartsHoldTheJob) {
  const JobId job = engine.submit_gpus(1);
  engine.cycle();
  engine.ended(job, {.cause = EndCause::kStartFailed, .detail = "no user 'x'", .keep_detail = true});
  engine.release_all();
  for (int32_t failures = 2; failures <= limits::kFailedStartsMax; ++failures) {
    EXPECT_FALSE(engine.job(job).held);
    fail_start(job);
  }
  EXPECT_TRUE(engine.job(job).held);
  EXPECT_EQ(engine.job(job).reason, JobReason::kHeld);
  EXPECT_EQ(engine.job(job).extras->last_detail.view(), "no user 'x'");
  EXPECT_EQ(entries(job).back().step, JobStep::kHeldByFailure);
  engine.advance(hours(1));
  EXPECT_TRUE(engine.cycle().empty());
  engine.apply(HoldJob{.job = job, .held = false, .by = "anna"});
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST_F(JobTimeline, AJobWithoutRetriesFailsAtItsFirstFailedStart) {
  const JobId job = engine.submit({.gpus = 1, .retry = {.system_retries = -1}});
  engine.cycle();
  engine.ended(job, {.cause = EndCause::kStartFailed});
  EXPECT_EQ(engine.job(job).reason, JobReason::kStartFailed);
}

class PauseTest : public JobTimeline {};

TEST_F(PauseTest, NothingStartsUntilItIsResumed) {
  const JobId runs = engine.run({.gpus = 1});
  engine.apply(PauseStarts{.paused = true, .by = "ops", .why = "switch is replaced"});
  const JobId waits = engine.submit_gpus(1);
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.state().config.pause.by, "ops");
  engine.finish(runs);
  EXPECT_TRUE(engine.cycle().empty());
  engine.apply(PauseStarts{.paused = false, .by = "ops"});
  engine.cycle();
  EXPECT_EQ(engine.state_of(waits), JobState::kScheduled);
}

TEST_F(PauseTest, APlanMadeBeforeItIsDropped) {
  const JobId job = engine.submit_gpus(1);
  const std::vector<uint32_t> generations = {engine.device(node, 0).generation};
  engine.apply(PauseStarts{.by = "ops"});
  engine.apply(CommitPlan{
      .groups = {PlanGroup{
          .job = job,
          .attempt = 1,
          .members = {MemberPlacement{.node = node, .device_mask = 1, .generations = generations}}}}});
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
}

TEST_F(PauseTest, ANewConfigurationLeavesItAndTheFirstIsNamed) {
  engine.apply(PauseStarts{.by = "ops", .why = "first"});
  engine.apply(PauseStarts{.by = "night", .why = "second"});
  EngineConfig config = engine.state().config;
  config.pause = {};
  config.queue_size_max = 17;
  engine.apply(Configure{.config = config});
  EXPECT_EQ(engine.state().config.queue_size_max, 17);
  EXPECT_EQ(engine.state().config.pause.why, "first");
}

}  // namespace
}  // namespace gpusched
