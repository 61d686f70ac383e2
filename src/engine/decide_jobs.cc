#include <algorithm>

#include "base/limits.h"
#include "engine/decide.h"

namespace gpusched::rules {
namespace {

bool node_could_run(const State& state, const Node& node, const Part& part) {
  if ((part.features & ~node.feature_bits) != 0) return false;
  if (node.cpu_milli < part.cpu_milli || node.memory_mb < part.memory_mb) return false;
  if (part.gpu_count == 0) return true;
  for (uint32_t device_class = 0; device_class < state.device_classes.size(); ++device_class) {
    const DeviceClass& kind = state.device_classes[device_class];
    if (kind.memory_mb < part.gpu_memory_mb || !gpu_model_matches(kind.model, part.gpu_model)) continue;
    const auto count = std::count_if(node.devices.begin(), node.devices.end(), [&](const Device& device) {
      return device.device_class == device_class;
    });
    if (count >= part.gpu_count) return true;
  }
  return false;
}

bool feasible(const State& state, const Part& part) {
  return std::any_of(state.nodes.begin(), state.nodes.end(),
                     [&](const Node& node) { return node_could_run(state, node, part); });
}

bool supported(const std::vector<Part>& parts) {
  if (parts.size() != 1) return false;
  const Part& part = parts.front();
  return part.member_count == 1 && part.gpu_count >= 0 && part.gpu_count <= limits::kGpusPerJobMax &&
         part.gpu_memory_mb >= 0 && part.gpu_memory_mb <= limits::kMegabytesMax && part.cpu_milli >= 0 &&
         part.memory_mb >= 0 && part.memory_mb <= limits::kMegabytesMax;
}

uint64_t body_digest(const SubmitJobs& command) {
  Digest body;
  body.mix(command.tenant.value);
  for (const JobRequest& job : command.jobs) mix_fields(body, job);
  return body.value();
}

Duration backoff(int32_t failures) {
  Duration wait = limits::kBackoffFirst;
  for (int32_t i = 1; i < failures && wait < limits::kBackoffMax; ++i) wait = wait * 2;
  return std::min(wait, limits::kBackoffMax);
}

JobReason failure_reason(EndCause cause) {
  switch (cause) {
    case EndCause::kNone:
    case EndCause::kStopped:
    case EndCause::kShimLost:
    case EndCause::kNodeLost:
    case EndCause::kContactLost:
      return JobReason::kLost;
    case EndCause::kExited:
      return JobReason::kExitCode;
    case EndCause::kSignaled:
      return JobReason::kSignal;
    case EndCause::kStartFailed:
      return JobReason::kStartFailed;
    case EndCause::kTimeout:
      return JobReason::kTimeout;
    case EndCause::kOutOfMemory:
      return JobReason::kOutOfMemory;
    case EndCause::kNodeFault:
      return JobReason::kNodeFault;
    case EndCause::kOverLimit:
      return JobReason::kOverLimit;
  }
  UNREACHABLE();
}

}  // namespace

Applied submit_jobs(const State& state, const SubmitJobs& command, Stamp stamp, Events& events) {
  const bool keyed = !command.request_key.empty();
  const uint64_t body = keyed ? body_digest(command) : 0;
  if (keyed) {
    const RememberedRequest* known = state.find_request(command.tenant, command.request_key);
    if (known != nullptr) {
      if (known->body_digest != body) return reject(RejectionCode::kRequestKeyConflict);
      return {.rejection = {}, .first_id = known->first_id, .id_count = known->id_count, .repeated = true};
    }
  }
  const Tenant* tenant = state.find_tenant(command.tenant);
  if (tenant == nullptr || tenant->deleted) return reject(RejectionCode::kTenantNotFound);
  if (command.jobs.empty()) return reject(RejectionCode::kPartsUnsupported);
  for (std::size_t i = 0; i < command.jobs.size(); ++i) {
    const JobRequest& request = command.jobs[i];
    std::optional<Rejection> problem;
    if (!supported(request.parts)) {
      problem = Rejection{.code = RejectionCode::kPartsUnsupported};
    } else {
      problem = over_quota(state, command.tenant, total_of(request.parts), false);
    }
    if (!problem && request.require_feasible && !feasible(state, request.parts.front())) {
      problem = Rejection{.code = RejectionCode::kInfeasible};
    }
    if (!problem) continue;
    problem->index = static_cast<uint32_t>(i);
    return reject(*problem);
  }
  const auto count = static_cast<int64_t>(command.jobs.size());
  if (state.waiting_count() + count > state.config.queue_size_max) {
    return reject(Rejection{.code = RejectionCode::kQueueFull,
                            .requested = count,
                            .limit = state.config.queue_size_max,
                            .current = state.waiting_count()});
  }
  for (std::size_t i = 0; i < command.jobs.size(); ++i) {
    const JobRequest& request = command.jobs[i];
    const int64_t effective = int64_t{request.priority} + tenant->priority_tier;
    events.push_back(JobSubmitted{.job = JobId{stamp.sequence + i},
                                  .tenant = command.tenant,
                                  .request = request,
                                  .order_key = order_key_of(effective, state.config.aging_per_hour, stamp.at),
                                  .at = stamp.at});
  }
  if (keyed) {
    events.push_back(RequestRemembered{.request = RememberedRequest{.tenant = command.tenant,
                                                                    .key = command.request_key,
                                                                    .body_digest = body,
                                                                    .first_id = stamp.sequence,
                                                                    .id_count = static_cast<uint32_t>(count),
                                                                    .at = stamp.at}});
  }
  return {.rejection = {}, .first_id = stamp.sequence, .id_count = static_cast<uint32_t>(count)};
}

Applied cancel_job(const State& state, const CancelJob& command, Stamp stamp, Events& events) {
  const Job* job = state.jobs.find(command.job);
  if (job == nullptr) return reject(RejectionCode::kJobNotFound);
  if (command.tenant.valid() && command.tenant != job->tenant) return reject(RejectionCode::kJobNotFound);
  if (is_final(job->state)) return reject(RejectionCode::kJobFinished);
  const Applied accepted{.rejection = {}, .first_id = job->id.value, .id_count = 1};
  if (job->state == JobState::kPending) {
    events.push_back(JobFinished{.job = job->id,
                                 .state = JobState::kCancelled,
                                 .reason = JobReason::kCancelled,
                                 .outcome = {},
                                 .at = stamp.at});
    return accepted;
  }
  if (job->cancel_requested) return accepted;  // Its end is under way.
  events.push_back(
      StopRequested{.job = job->id, .attempt = job->attempt_count, .reason = StopReason::kCancel});
  return accepted;
}

Applied update_job(const State& state, const UpdateJob& command, Events& events) {
  const Job* job = state.jobs.find(command.job);
  if (job == nullptr) return reject(RejectionCode::kJobNotFound);
  if (command.tenant.valid() && command.tenant != job->tenant) return reject(RejectionCode::kJobNotFound);
  if (is_final(job->state)) return reject(RejectionCode::kJobFinished);
  const bool reorders = (command.given & kJobPriority) != 0;
  if (reorders && job->state != JobState::kPending) return reject(RejectionCode::kJobNotWaiting);
  JobUpdated updated{.change = command};
  if (reorders) {
    const Tenant* tenant = state.find_tenant(job->tenant);
    CHECK(tenant != nullptr);
    const int64_t effective = int64_t{command.priority} + tenant->priority_tier;
    updated.order_key = order_key_of(effective, state.config.aging_per_hour, job->submitted_at);
  }
  events.push_back(std::move(updated));
  return {.rejection = {}, .first_id = job->id.value, .id_count = 1};
}

Applied hold_job(const State& state, const HoldJob& command, Events& events) {
  const Job* job = state.jobs.find(command.job);
  if (job == nullptr) return reject(RejectionCode::kJobNotFound);
  if (command.tenant.valid() && command.tenant != job->tenant) return reject(RejectionCode::kJobNotFound);
  if (is_final(job->state)) return reject(RejectionCode::kJobFinished);
  if (job->state != JobState::kPending) return reject(RejectionCode::kJobNotWaiting);
  if (job->held != command.held) events.push_back(JobHoldChanged{.job = job->id, .held = command.held});
  return {.rejection = {}, .first_id = job->id.value, .id_count = 1};
}

Applied requeue_job(const State& state, const RequeueJob& command, Events& events) {
  const Job* job = state.jobs.find(command.job);
  if (job == nullptr) return reject(RejectionCode::kJobNotFound);
  if (command.tenant.valid() && command.tenant != job->tenant) return reject(RejectionCode::kJobNotFound);
  if (is_final(job->state)) return reject(RejectionCode::kJobFinished);
  if (job->state == JobState::kPending) return reject(RejectionCode::kJobNotPlaced);
  const Attempt* attempt = state.find_attempt(job->id, job->attempt_count);
  CHECK(attempt != nullptr);
  if (attempt->stop != StopReason::kNone && attempt->stop != StopReason::kRequeue)
    return reject(RejectionCode::kStale);
  if (attempt->stop == StopReason::kNone) {
    events.push_back(
        StopRequested{.job = job->id, .attempt = attempt->number, .reason = StopReason::kRequeue});
  }
  return {.rejection = {}, .first_id = job->id.value, .id_count = 1};
}

void conclude(const State& state, const Job& job, StopReason stop, const Outcome& outcome, Time at,
              Events& events) {
  const auto finish = [&](JobState to, JobReason reason) {
    events.push_back(JobFinished{.job = job.id, .state = to, .reason = reason, .outcome = outcome, .at = at});
  };
  // Memory and other limits are the job's own doing, as its exit code is.
  const bool by_itself = outcome.cause == EndCause::kExited || outcome.cause == EndCause::kSignaled ||
                         outcome.cause == EndCause::kOutOfMemory || outcome.cause == EndCause::kOverLimit;
  if (outcome.cause == EndCause::kExited && outcome.exit_code == 0) {
    return finish(JobState::kCompleted, JobReason::kSucceeded);
  }
  if (stop == StopReason::kCancel) return finish(JobState::kCancelled, JobReason::kCancelled);
  if (stop == StopReason::kTimeout || outcome.cause == EndCause::kTimeout) {
    return finish(JobState::kFailed, JobReason::kTimeout);
  }
  if (stop == StopReason::kRequeue) {
    events.push_back(JobRequeued{
        .job = job.id, .outcome = outcome, .not_before = at + limits::kBackoffFirst, .free_of_charge = true});
    return;
  }
  if (outcome.cause == EndCause::kNodeFault) {
    const int32_t faults = job.node_faults + 1;
    events.push_back(JobRequeued{.job = job.id,
                                 .outcome = outcome,
                                 .not_before = at + backoff(faults),
                                 .free_of_charge = true,
                                 .hold = faults >= limits::kNodeFaultsMax});
    return;
  }
  const int32_t failures = (by_itself ? job.exit_failures : job.system_failures) + 1;
  int32_t retries = job.retry.exit_code_retries;
  if (!by_itself) {
    retries =
        job.retry.system_retries == 0 ? limits::kSystemRetriesMax : std::max(job.retry.system_retries, 0);
  }
  if (failures > retries) return finish(JobState::kFailed, failure_reason(outcome.cause));
  static_cast<void>(state);
  events.push_back(JobRequeued{
      .job = job.id, .outcome = outcome, .not_before = at + backoff(failures), .by_exit_code = by_itself});
}

}  // namespace gpusched::rules
