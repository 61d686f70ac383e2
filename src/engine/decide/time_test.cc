#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

EngineConfig keeping(int64_t jobs, Duration kept = hours(24 * 7)) {
  EngineConfig config;
  config.finished_jobs_max = jobs;
  config.finished_jobs_kept = kept;
  return config;
}

TEST(AdvanceTime, WithNothingDueChangesNothing) {
  TestEngine engine;
  engine.submit({});
  const Digest before = engine.digest();
  engine.apply(AdvanceTime{});
  EXPECT_EQ(engine.digest(), before);
  EXPECT_EQ(engine.state().next_due(), kNever);
}

TEST(AdvanceTime, NextDueIsTheEarliestTimer) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1, .max_runtime = minutes(1)});
  EXPECT_EQ(engine.state().next_due(), engine.now() + minutes(1) + limits::kRuntimeSlack);
  engine.apply(NodeLeaseLost{.node = node});
  EXPECT_EQ(engine.state().next_due(), engine.now() + minutes(1) + limits::kRuntimeSlack);
}

TEST(AdvanceTime, OneCommandDoesABoundedAmountOfWork) {
  TestEngine engine;
  engine.apply(Configure{.config = keeping(0)});
  const std::size_t count = limits::kForgottenPerCommand + 10;
  for (std::size_t i = 0; i < count; ++i) engine.apply(CancelJob{.job = engine.submit({})});
  engine.apply(AdvanceTime{});
  EXPECT_EQ(engine.state().finished.size(), 10u);
  EXPECT_LE(engine.state().next_due(), engine.now());
  engine.apply(AdvanceTime{});
  EXPECT_TRUE(engine.state().finished.empty());
  EXPECT_EQ(engine.state().next_due(), kNever);
}

TEST(AdvanceTime, ALongStandstillFiresEverythingInItsOrder) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.overlap_allowed = true}});
  engine.apply(NodeLeaseLost{.node = node});
  const Time silent = engine.now();
  engine.advance(hours(1));
  // Lost five minutes after the silence began; its back-off was over one second later.
  EXPECT_EQ(engine.node(node).state_since, silent + engine.state().config.lost_after);
  EXPECT_EQ(engine.job(job).reason, JobReason::kRetry);
  EXPECT_EQ(engine.state().line.size(), 1u);
}

TEST(Retention, FinishedJobsAreForgottenAfterTheirTime) {
  TestEngine engine;
  engine.apply(Configure{.config = keeping(100, hours(1))});
  const JobId job = engine.submit({});
  engine.apply(CancelJob{.job = job});
  engine.advance(hours(1) - milliseconds(1));
  EXPECT_NE(engine.state().jobs.find(job), nullptr);
  engine.advance(milliseconds(1));
  EXPECT_EQ(engine.state().jobs.find(job), nullptr);
  EXPECT_EQ(engine.state().count(JobState::kCancelled), 0);
}

TEST(Retention, BeyondTheirNumberTheOldestGoFirst) {
  TestEngine engine;
  engine.apply(Configure{.config = keeping(2)});
  std::vector<JobId> jobs;
  for (int i = 0; i < 4; ++i) jobs.push_back(engine.submit({}));
  for (const int i : {2, 0, 3, 1}) engine.apply(CancelJob{.job = jobs[static_cast<std::size_t>(i)]});
  engine.advance(Duration{});
  EXPECT_EQ(engine.state().jobs.find(jobs[2]), nullptr);
  EXPECT_EQ(engine.state().jobs.find(jobs[0]), nullptr);
  EXPECT_NE(engine.state().jobs.find(jobs[3]), nullptr);
  EXPECT_NE(engine.state().jobs.find(jobs[1]), nullptr);
}

TEST(Retention, ALowerNumberHoldsAtOnce) {
  TestEngine engine;
  for (int i = 0; i < 3; ++i) engine.apply(CancelJob{.job = engine.submit({})});
  engine.apply(Configure{.config = keeping(1)});
  EXPECT_LE(engine.state().next_due(), engine.now());
  engine.advance(Duration{});
  EXPECT_EQ(engine.state().finished.size(), 1u);
}

TEST(Retention, AForgottenJobsClassMakesRoomForAnother) {
  TestEngine engine;
  engine.apply(Configure{.config = keeping(0)});
  engine.apply(CancelJob{.job = engine.submit({.cpu_milli = 1})});
  engine.advance(Duration{});
  engine.submit({.cpu_milli = 2});
  EXPECT_EQ(engine.state().classes.size(), 1u);
}

TEST(Retention, RequestKeysBeyondTheirNumberAreDueAtOnce) {
  State state;
  state.last.at = Time{1000};
  for (int64_t i = 0; i <= limits::kRequestKeysMax; ++i) {
    state.remember({.tenant = kDefaultTenant,
                    .key = std::to_string(i),
                    .first_id = static_cast<uint64_t>(i + 1),
                    .at = Time{1000}});
  }
  EXPECT_LE(state.next_due(), Time{1000});
  Events events;
  apply(state, AdvanceTime{}, {.sequence = state.last.sequence + 1, .at = Time{1000}}, events);
  EXPECT_EQ(static_cast<int64_t>(state.requests.size()), limits::kRequestKeysMax);
  EXPECT_EQ(state.find_request(kDefaultTenant, 0, "0"), nullptr);
  EXPECT_NE(state.find_request(kDefaultTenant, 0, "1"), nullptr);
}

TEST(Retention, WhoRemembersMostMakesRoomForTheOthers) {
  State state;
  state.last.at = Time{1000};
  state.config.feature_level = kFeatureLevel;
  const auto remember = [&](TenantId tenant, int64_t number) {
    state.remember({.tenant = tenant,
                    .key = std::to_string(number),
                    .first_id = static_cast<uint64_t>(number),
                    .at = Time{1000}});
  };
  remember(TenantId{7}, 1);
  for (int64_t i = 2; i <= limits::kRequestKeysMax + 100; ++i) remember(kDefaultTenant, i);
  EXPECT_LE(state.next_due(), Time{1000});
  Events events;
  apply(state, AdvanceTime{}, {.sequence = state.last.sequence + 1, .at = Time{1000}}, events);
  EXPECT_EQ(static_cast<int64_t>(state.requests.size()), limits::kRequestKeysMax);
  EXPECT_NE(state.find_request(TenantId{7}, 0, "1"), nullptr);
  EXPECT_EQ(state.find_request(kDefaultTenant, 0, "2"), nullptr);
  EXPECT_NE(state.find_request(kDefaultTenant, 0, std::to_string(limits::kRequestKeysMax)), nullptr);
}

TEST(Follow, AFollowersStateGivesTheSameAnswers) {
  TestEngine engine;
  State copy = engine.state().clone();
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit_gpus(1);
  EXPECT_EQ(copy.jobs.size(), 0u);
  State later = engine.state().clone();
  Events events;
  const Applied applied =
      apply(later, CancelJob{.job = job}, {.sequence = later.last.sequence + 1, .at = engine.now()}, events);
  EXPECT_FALSE(applied.rejection.has_value());
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  engine.apply(CancelJob{.job = job});
  EXPECT_EQ(later.digest, engine.digest());
}

// A start. `span` passed before it, or a clock jumped.

TEST(NoteStart, ARuntimeCountsOnFromWhereItStood) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .max_runtime = minutes(10)});
  engine.advance(minutes(4));
  engine.set_now(engine.now() + hours(30));
  engine.apply(AdvanceTime{});  // Without the scheduler's word this would be its time-out: see below.
  TestEngine other;
  other.add_node("n1", {.gpus = 1});
  const JobId kept = other.run({.gpus = 1, .max_runtime = minutes(10)});
  other.apply(AdvanceTime{});
  other.set_now(other.now() + hours(30));
  other.apply(NoteStart{});
  other.apply(AdvanceTime{});
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kTimeout);
  EXPECT_EQ(other.state().find_attempt(kept, 1)->stop, StopReason::kNone);
  other.advance(minutes(10) + limits::kRuntimeSlack);
  EXPECT_EQ(other.state().find_attempt(kept, 1)->stop, StopReason::kTimeout);
}

TEST(NoteStart, ASharesDrainCountsOnFromWhereItStood) {
  TestEngine engine;
  engine.apply(Configure{.config = {.drain_limit = seconds(60), .feature_level = kFeatureLevel}});
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .gpu_milli = 500});
  engine.run({.gpus = 1, .gpu_milli = 500});
  engine.ended(job);
  engine.set_now(engine.now() + hours(3));
  engine.apply(NoteStart{});
  const Share& share = engine.device(node, 0).shares.front();
  engine.apply(DeviceStillBusy{.node = node,
                               .device = 0,
                               .generation = engine.device(node, 0).generation,
                               .evidence = "pid 7",
                               .share_of = share.held_by});
  EXPECT_EQ(engine.device(node, 0).state, DeviceState::kShared);
}

TEST(NoteStart, ASilenceCountsOnFromWhereItStood) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.kill_after_lost_contact = minutes(20)}});
  engine.apply(NodeLeaseLost{.node = node});
  engine.advance(minutes(1));
  engine.apply(AdvanceTime{});
  engine.set_now(engine.now() + hours(30));
  engine.apply(NoteStart{});
  engine.advance(Duration{});
  EXPECT_EQ(engine.node(node).state, NodeState::kUnreachable);
  EXPECT_EQ(engine.job(job).state, JobState::kRunning);
  engine.advance(engine.state().config.lost_after - minutes(1));
  EXPECT_EQ(engine.node(node).state, NodeState::kLost);
  EXPECT_EQ(engine.job(job).state, JobState::kRunning);
  engine.advance(minutes(16) + limits::kContactSlack);
  EXPECT_EQ(engine.job(job).state, JobState::kPending);
  EXPECT_EQ(engine.job(job).last_cause, EndCause::kContactLost);
}

TEST(NoteStart, ANodeThatComesBackAfterItLeavesNoTimer) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.apply(NodeLeaseLost{.node = node});
  engine.set_now(engine.now() + hours(30));
  engine.apply(NoteStart{});
  engine.apply(NodeLeaseBack{.node = node});
  EXPECT_TRUE(engine.state().timers.empty());
}

TEST(NoteStart, WhatIsKeptForATimeIsKeptForLongerAndNotForEver) {
  TestEngine engine;
  engine.apply(Configure{.config = keeping(100, hours(48))});
  const JobId job = engine.submit({});
  engine.apply(CancelJob{.job = job});
  engine.set_now(engine.now() + hours(24 * 365));
  engine.apply(NoteStart{});
  engine.advance(hours(47));
  EXPECT_NE(engine.state().jobs.find(job), nullptr);
  engine.advance(hours(1));
  EXPECT_EQ(engine.state().jobs.find(job), nullptr);
  const JobId later = engine.submit({});
  engine.apply(CancelJob{.job = later});
  engine.advance(hours(48));
  EXPECT_EQ(engine.state().jobs.find(later), nullptr);
}

TEST(NoteStart, ADeviceDrainsOnFromWhereItStood) {
  TestEngine engine;
  engine.apply(Configure{.config = {.drain_limit = seconds(60), .feature_level = kFeatureLevel}});
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  const auto still_busy = [&] {
    engine.apply(DeviceStillBusy{
        .node = node, .device = 0, .generation = engine.device(node, 0).generation, .evidence = "pid 7"});
    return engine.device(node, 0).state;
  };
  engine.set_now(engine.now() + hours(3));
  engine.apply(NoteStart{});
  EXPECT_EQ(still_busy(), DeviceState::kDraining) << "nobody looked at it for three hours";
  engine.advance(seconds(59));
  EXPECT_EQ(still_busy(), DeviceState::kDraining);
  engine.advance(seconds(1));
  EXPECT_EQ(still_busy(), DeviceState::kQuarantined);
}

TEST(NoteStart, ANewLimitOfWhatRunsCountsWithoutTheTimeInWhichNobodyWatched) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  engine.set_now(engine.now() + hours(3));
  engine.apply(NoteStart{});
  engine.apply(UpdateJob{.job = job, .given = kJobMaxRuntime, .max_runtime = minutes(10)});
  engine.advance(minutes(10));
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kNone);
  engine.advance(limits::kRuntimeSlack);
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kTimeout);
}

TEST(NoteStart, AnEndBehindItLeavesNoTimer) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .max_runtime = minutes(10)});
  engine.set_now(engine.now() + hours(3));
  engine.apply(NoteStart{});
  engine.ended(job);
  EXPECT_TRUE(engine.state().timers.empty());
}

}  // namespace
}  // namespace gpusched
