#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/text/trace_variable.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

Limits limited(Resource resource, int64_t limit) {
  Limits limits;
  limits.set(resource, limit);
  return limits;
}

TEST(SubmitJobs, OneJobBecomesPendingUnderItsSequenceNumber) {
  TestEngine engine;
  const uint64_t next = engine.state().last.sequence + 1;
  const Applied applied = engine.try_submit({.gpus = 1, .priority = 7});
  ASSERT_FALSE(applied.rejection.has_value());
  EXPECT_EQ(applied.first_id, next);
  EXPECT_EQ(applied.id_count, 1u);
  const Job& job = engine.job(JobId{next});
  EXPECT_EQ(job.state, JobState::kPending);
  EXPECT_EQ(job.reason, JobReason::kSubmitted);
  EXPECT_EQ(job.priority, 7);
  EXPECT_EQ(job.submitted_at, engine.now());
  EXPECT_EQ(job.spec.view(), "spec");
  EXPECT_EQ(engine.state().waiting_count(), 1);
  EXPECT_EQ(engine.tenant(kDefaultTenant).jobs_total, 1);
}

TEST(SubmitJobs, ABatchTakesOneNumberAJob) {
  TestEngine engine;
  const Applied applied = engine.apply(SubmitJobs{
      .tenant = kDefaultTenant, .jobs = {request_of({}), request_of({.gpus = 1}), request_of({})}});
  EXPECT_EQ(applied.id_count, 3u);
  EXPECT_EQ(engine.state().last.sequence, applied.first_id + 2);
  EXPECT_EQ(engine.job(JobId{applied.first_id + 2}).state, JobState::kPending);
  EXPECT_EQ(engine.submit({}).value, applied.first_id + 3);
}

TEST(SubmitJobs, ABatchIsAcceptedWholeOrNotAtAll) {
  TestEngine engine;
  const TenantId tenant = engine.add_tenant("t", {}, limited(Resource::kGpus, 4));
  const Applied applied = engine.apply(SubmitJobs{
      .tenant = tenant, .jobs = {request_of({.gpus = 1}), request_of({.gpus = 5}), request_of({.gpus = 6})}});
  expect_rejected(applied, RejectionCode::kQuotaExceeded);
  EXPECT_EQ(applied.rejection->index, 1u);
  EXPECT_EQ(engine.state().jobs.size(), 0u);
}

TEST(SubmitJobs, ARejectedBatchStillTakesItsNumbers) {
  TestEngine engine;
  const uint64_t before = engine.state().last.sequence;
  engine.apply(SubmitJobs{.tenant = TenantId{404}, .jobs = {request_of({}), request_of({})}});
  EXPECT_EQ(engine.state().last.sequence, before + 2);
}

TEST(SubmitJobs, UnknownTenantIsRejected) {
  TestEngine engine;
  expect_rejected(engine.try_submit({.tenant = TenantId{404}}), RejectionCode::kTenantNotFound);
}

TEST(SubmitJobs, DeletedTenantIsRejected) {
  TestEngine engine;
  const TenantId tenant = engine.add_tenant("t");
  engine.apply(DeleteTenant{.tenant = tenant});
  expect_rejected(engine.try_submit({.tenant = tenant}), RejectionCode::kTenantNotFound);
}

TEST(SubmitJobs, NoJobsAreRejected) {
  TestEngine engine;
  expect_rejected(engine.apply(SubmitJobs{.tenant = kDefaultTenant}), RejectionCode::kPartsUnsupported);
}

TEST(SubmitJobs, SeveralPartsOrMembersAreRejected) {
  TestEngine engine;
  JobRequest two_parts = request_of({});
  two_parts.parts.emplace_back();
  JobRequest two_members = request_of({});
  two_members.parts.front().member_count = 2;
  JobRequest none = request_of({});
  none.parts.clear();
  for (const JobRequest& request : {two_parts, two_members, none}) {
    expect_rejected(engine.apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request}}),
                    RejectionCode::kPartsUnsupported);
  }
}

TEST(SubmitJobs, NegativeAmountsAreRejected) {
  TestEngine engine;
  for (const Want& want : {Want{.gpus = -1}, Want{.cpu_milli = -1}, Want{.memory_mb = -1},
                           Want{.gpus = 1, .gpu_memory_mb = -1}}) {
    expect_rejected(engine.try_submit(want), RejectionCode::kPartsUnsupported);
  }
}

TEST(SubmitJobs, MoreThanTheTenantMayEverHoldIsRejectedWithTheEvidence) {
  TestEngine engine;
  const TenantId tenant = engine.add_tenant("t", {}, limited(Resource::kGpus, 4));
  const Applied applied = engine.try_submit({.gpus = 5, .tenant = tenant});
  expect_rejected(applied, RejectionCode::kQuotaExceeded);
  EXPECT_EQ(applied.rejection->tenant, tenant);
  EXPECT_EQ(applied.rejection->resource, Resource::kGpus);
  EXPECT_EQ(applied.rejection->requested, 5);
  EXPECT_EQ(applied.rejection->limit, 4);
  EXPECT_FALSE(engine.try_submit({.gpus = 4, .tenant = tenant}).rejection.has_value());
}

TEST(SubmitJobs, EachResourceHasItsOwnLimit) {
  const std::pair<Resource, Want> cases[] = {
      {Resource::kGpus, {.gpus = 2}},
      {Resource::kGpuMemory, {.gpus = 1, .gpu_memory_mb = 2}},
      {Resource::kCpu, {.cpu_milli = 2}},
      {Resource::kMemory, {.memory_mb = 2}},
  };
  for (const auto& [resource, want] : cases) {
    TestEngine engine;
    Want of_tenant = want;
    of_tenant.tenant = engine.add_tenant("t", {}, limited(resource, 1));
    const Applied applied = engine.try_submit(of_tenant);
    expect_rejected(applied, RejectionCode::kQuotaExceeded);
    EXPECT_EQ(applied.rejection->resource, resource);
  }
}

TEST(SubmitJobs, ALimitOfZeroRefusesAllButJobsThatNeedNone) {
  TestEngine engine;
  const TenantId tenant = engine.add_tenant("t", {}, limited(Resource::kGpus, 0));
  expect_rejected(engine.try_submit({.gpus = 1, .tenant = tenant}), RejectionCode::kQuotaExceeded);
  EXPECT_FALSE(engine.try_submit({.cpu_milli = 1000, .tenant = tenant}).rejection.has_value());
}

TEST(SubmitJobs, ALimitOfZeroRunningJobsRefusesEveryJob) {
  TestEngine engine;
  const TenantId tenant = engine.add_tenant("t", {}, limited(Resource::kJobs, 0));
  expect_rejected(engine.try_submit({.tenant = tenant}), RejectionCode::kQuotaExceeded);
}

TEST(SubmitJobs, AParentsLimitHoldsForItsChildren) {
  TestEngine engine;
  const TenantId parent = engine.add_tenant("parent", {}, limited(Resource::kGpus, 2));
  const TenantId child = engine.add_tenant("child", parent, limited(Resource::kGpus, 8));
  const Applied applied = engine.try_submit({.gpus = 3, .tenant = child});
  expect_rejected(applied, RejectionCode::kQuotaExceeded);
  EXPECT_EQ(applied.rejection->tenant, parent);
}

TEST(SubmitJobs, UsageDoesNotCountAtSubmission) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 4});
  const TenantId tenant = engine.add_tenant("t", {}, limited(Resource::kGpus, 2));
  engine.run({.gpus = 2, .tenant = tenant});
  EXPECT_FALSE(engine.try_submit({.gpus = 2, .tenant = tenant}).rejection.has_value());
}

TEST(SubmitJobs, AFullQueueRefusesAndABatchCountsWhole) {
  TestEngine engine;
  EngineConfig config;
  config.queue_size_max = 3;
  engine.apply(Configure{.config = config});
  engine.submit({});
  const Applied applied = engine.apply(
      SubmitJobs{.tenant = kDefaultTenant, .jobs = {request_of({}), request_of({}), request_of({})}});
  expect_rejected(applied, RejectionCode::kQueueFull);
  EXPECT_EQ(applied.rejection->limit, 3);
  EXPECT_EQ(applied.rejection->current, 1);
  EXPECT_FALSE(engine.apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request_of({}), request_of({})}})
                   .rejection.has_value());
}

TEST(SubmitJobs, JobsThatRunDoNotFillTheQueue) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  EngineConfig config;
  config.queue_size_max = 1;
  engine.apply(Configure{.config = config});
  engine.run({.gpus = 1});
  EXPECT_FALSE(engine.try_submit({.gpus = 1}).rejection.has_value());
  expect_rejected(engine.try_submit({.gpus = 1}), RejectionCode::kQueueFull);
}

TEST(SubmitJobs, RequireFeasibleRefusesWhatNoNodeCouldEverRun) {
  TestEngine engine;
  expect_rejected(engine.try_submit({.gpus = 1, .require_feasible = true}), RejectionCode::kInfeasible);
  engine.add_node("n1", {.gpus = 4, .cpu_milli = 8000, .memory_mb = 1000});
  const Want impossible[] = {{.gpus = 5},
                             {.gpus = 1, .model = "H100"},
                             {.gpus = 1, .gpu_memory_mb = 100'000},
                             {.cpu_milli = 8001},
                             {.memory_mb = 1001}};
  for (Want want : impossible) {
    want.require_feasible = true;
    expect_rejected(engine.try_submit(want), RejectionCode::kInfeasible);
    want.require_feasible = false;
    EXPECT_FALSE(engine.try_submit(want).rejection.has_value());
  }
  EXPECT_FALSE(
      engine.try_submit({.gpus = 4, .model = "a100", .require_feasible = true}).rejection.has_value());
}

TEST(SubmitJobs, RequireFeasibleCountsDevicesOfOneKindOnly) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", {.gpus = 2});
  offer.devices[1].model = "H100";
  engine.apply(offer);
  expect_rejected(engine.try_submit({.gpus = 2, .require_feasible = true}), RejectionCode::kInfeasible);
}

TEST(RequestKey, TheSameKeyAndBodyGetTheSameAnswer) {
  TestEngine engine;
  const Applied first = engine.try_submit({.gpus = 1}, "key");
  const Applied again = engine.try_submit({.gpus = 1}, "key");
  EXPECT_FALSE(again.rejection.has_value());
  EXPECT_TRUE(again.repeated);
  EXPECT_FALSE(first.repeated);
  EXPECT_EQ(again.first_id, first.first_id);
  EXPECT_EQ(again.id_count, first.id_count);
  EXPECT_EQ(engine.state().jobs.size(), 1u);
}

TEST(RequestKey, AnotherBodyIsAConflict) {
  TestEngine engine;
  engine.try_submit({.gpus = 1}, "key");
  expect_rejected(engine.try_submit({.gpus = 2}, "key"), RejectionCode::kRequestKeyConflict);
}

TEST(RequestKey, KeysOfDifferentTenantsAreDifferent) {
  TestEngine engine;
  const TenantId other = engine.add_tenant("t");
  engine.try_submit({.gpus = 1}, "key");
  const Applied applied = engine.try_submit({.gpus = 1, .tenant = other}, "key");
  EXPECT_FALSE(applied.repeated);
  EXPECT_EQ(engine.state().jobs.size(), 2u);
}

TEST(RequestKey, TheAnswerStandsAfterTheQueueIsFullAndTheJobIsOver) {
  TestEngine engine;
  EngineConfig config;
  config.queue_size_max = 1;
  engine.apply(Configure{.config = config});
  const Applied first = engine.try_submit({}, "key");
  EXPECT_EQ(engine.try_submit({}, "key").first_id, first.first_id);
  engine.apply(CancelJob{.job = JobId{first.first_id}});
  EXPECT_EQ(engine.try_submit({}, "key").first_id, first.first_id);
}

TEST(RequestKey, ARefusalIsNotRemembered) {
  TestEngine engine;
  EngineConfig config;
  config.queue_size_max = 0;
  engine.apply(Configure{.config = config});
  expect_rejected(engine.try_submit({}, "key"), RejectionCode::kQueueFull);
  engine.apply(Configure{.config = EngineConfig{}});
  EXPECT_FALSE(engine.try_submit({}, "key").repeated);
}

TEST(RequestKey, IsForgottenAfterADay) {
  TestEngine engine;
  const Applied first = engine.try_submit({.gpus = 1}, "key");
  engine.advance(limits::kRequestKeysKept - milliseconds(1));
  EXPECT_TRUE(engine.try_submit({.gpus = 1}, "key").repeated);
  engine.advance(milliseconds(1));
  EXPECT_TRUE(engine.state().requests.empty());
  const Applied later = engine.try_submit({.gpus = 1}, "key");
  EXPECT_FALSE(later.repeated);
  EXPECT_NE(later.first_id, first.first_id);
}

/// A submission with the trace of one try, by the key of all tries.
SubmitJobs traced(std::string_view spec, std::string_view traceparent) {
  std::string packed(spec);
  add_trace(packed, traceparent);
  SubmitJobs command{.tenant = kDefaultTenant, .request_key = "key", .jobs = {request_of({.gpus = 1})}};
  command.jobs.front().spec = Blob(packed);
  return command;
}

TEST(RequestKey, IsOfTheSameJobWhateverTheTraceOfATry) {
  const std::string first_trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const std::string later_trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const std::string spec = "\x0a\x05train";
  TestEngine engine;
  const Applied first = engine.apply(traced(spec, first_trace));
  ASSERT_FALSE(first.rejection.has_value());
  for (const std::string_view trace : {std::string_view(later_trace), std::string_view()}) {
    const Applied again = engine.apply(traced(spec, trace));
    EXPECT_TRUE(again.repeated);
    EXPECT_EQ(again.first_id, first.first_id);
  }
  EXPECT_NE(engine.job(JobId{first.first_id}).spec.view().find(first_trace), std::string_view::npos);
  expect_rejected(engine.apply(traced("\x0a\x05other", first_trace)), RejectionCode::kRequestKeyConflict);
}

TEST(RequestKey, OfARequestWithoutATraceIsThatOfOneWithATrace) {
  TestEngine engine;
  const Applied first = engine.apply(traced("\x0a\x05train", ""));
  EXPECT_TRUE(engine.apply(traced("\x0a\x05train", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
                  .repeated);
  EXPECT_EQ(engine.job(JobId{first.first_id}).spec.view(), "\x0a\x05train");
}

TEST(RequestKey, CreatingATenantHasOneToo) {
  TestEngine engine;
  const Applied first = engine.apply(CreateTenant{.name = "t", .request_key = "key"});
  const Applied again = engine.apply(CreateTenant{.name = "t", .request_key = "key"});
  EXPECT_TRUE(again.repeated);
  EXPECT_EQ(again.first_id, first.first_id);
  expect_rejected(engine.apply(CreateTenant{.name = "u", .request_key = "key"}),
                  RejectionCode::kRequestKeyConflict);
}

TEST(CancelJob, APendingJobEndsAtOnce) {
  TestEngine engine;
  const JobId job = engine.submit({});
  engine.apply(CancelJob{.job = job});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
  EXPECT_EQ(engine.job(job).reason, JobReason::kCancelled);
  EXPECT_EQ(engine.job(job).ended_at, engine.now());
  EXPECT_TRUE(engine.state().line.empty());
  EXPECT_EQ(engine.state().waiting_count(), 0);
}

TEST(CancelJob, AScheduledJobIsStoppedByItsNode) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit_gpus(1);
  engine.cycle();
  engine.apply(CancelJob{.job = job});
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
  EXPECT_TRUE(engine.job(job).cancel_requested);
  EXPECT_EQ(engine.state().find_attempt(job, 1)->stop, StopReason::kCancel);
  engine.ended(job, {.cause = EndCause::kStopped, .detail = {}});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
}

TEST(CancelJob, ARunningJobIsCancelledWhenItsNodeReportsTheEnd) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  engine.apply(CancelJob{.job = job});
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.ended(job, {.cause = EndCause::kSignaled, .signal = 15, .detail = {}});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
}

TEST(CancelJob, AJobThatSucceededMeanwhileIsCompleted) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  engine.apply(CancelJob{.job = job});
  engine.ended(job, exited(0));
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
}

TEST(CancelJob, ASecondCancelIsAcceptedAndChangesNothing) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  engine.apply(CancelJob{.job = job});
  const Digest before = engine.digest();
  EXPECT_FALSE(engine.apply(CancelJob{.job = job}).rejection.has_value());
  EXPECT_EQ(engine.digest(), before);
}

TEST(CancelJob, AFinishedJobIsTooLate) {
  TestEngine engine;
  const JobId job = engine.submit({});
  engine.apply(CancelJob{.job = job});
  expect_rejected(engine.apply(CancelJob{.job = job}), RejectionCode::kJobFinished);
}

TEST(CancelJob, AnUnknownJobIsNotFound) {
  TestEngine engine;
  expect_rejected(engine.apply(CancelJob{.job = JobId{404}}), RejectionCode::kJobNotFound);
}

TEST(CancelJob, AnotherTenantsJobIsNotFound) {
  TestEngine engine;
  const TenantId other = engine.add_tenant("t");
  const JobId job = engine.submit({});
  expect_rejected(engine.apply(CancelJob{.job = job, .tenant = other}), RejectionCode::kJobNotFound);
  EXPECT_FALSE(engine.apply(CancelJob{.job = job, .tenant = kDefaultTenant}).rejection.has_value());
}

TEST(CancelJob, AJobThatBacksOffEndsAtOnceAndItsTimerIsGone) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.exit_code_retries = 1}});
  engine.ended(job, exited(3));
  ASSERT_EQ(engine.state().pending_backoff, 1);
  engine.apply(CancelJob{.job = job});
  EXPECT_EQ(engine.state_of(job), JobState::kCancelled);
  EXPECT_EQ(engine.state().pending_backoff, 0);
  EXPECT_TRUE(engine.state().timers.empty());
}

}  // namespace
}  // namespace gpusched
