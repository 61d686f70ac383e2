#include <algorithm>
#include <map>

#include "base/limits.h"
#include "base/text/trace_variable.h"
#include "engine/decide/decide.h"
#include "engine/decide/feasibility.h"

namespace gpusched::rules {
namespace {

/// Some parts of it are of several members, or there are several: all are placed together. Only the last may
/// be elastic; a member has one node's devices, and shares stand alone, slices of GPUs without any other
/// member.
bool sound_gang(const State& state, const std::vector<Part>& parts) {
  if (state.config.feature_level < 5 || parts.size() > limits::kPartsMax) return false;
  int64_t members = 0;
  for (const Part& part : parts) {
    if (part.member_count < 1 || part.gpu_count > static_cast<int32_t>(limits::kDevicesPerNodeMax))
      return false;
    if (part.member_max != 0 && (part.member_max < part.member_count || &part != &parts.back())) return false;
    if (part.is_slice() || (part.is_share() && parts.size() > 1)) return false;
    if (part.domain != parts.front().domain || part.domain_required != parts.front().domain_required)
      return false;
    if (part.work != parts.front().work || part.one_member_per_node != parts.front().one_member_per_node)
      return false;
    members += part.members_most();
  }
  return members <= limits::kMembersMax;
}

/// The most devices that serve the part on one node.
int32_t most_on_a_node(const State& state, const Part& part) {
  int32_t most = 0;
  for (const Node& node : state.nodes) {
    for (uint32_t kind = 0; kind < state.device_classes.size(); ++kind) {
      if (!state.device_classes[kind].serves(part)) continue;
      const auto count = std::count_if(node.devices.begin(), node.devices.end(),
                                       [&](const Device& device) { return device.device_class == kind; });
      most = std::max(most, static_cast<int32_t>(count));
    }
  }
  return most;
}

/// A part whose devices may be on several nodes, as parts of one member a node: on as few nodes as can be, as
/// evenly as can be. A part that one node has, or none has any of, stays one member.
std::vector<Part> divided(const State& state, const Part& asked) {
  Part part = asked;
  part.may_span_nodes = false;
  const int32_t most =
      part.gpu_count > 0 && state.config.feature_level >= 5 ? most_on_a_node(state, part) : 0;
  if (most == 0 || part.gpu_count <= most) return {part};
  const int32_t nodes = (part.gpu_count + most - 1) / most;
  const int32_t larger = part.gpu_count % nodes;
  const int32_t each = part.gpu_count / nodes;
  part.one_member_per_node = true;
  std::vector<Part> parts;
  const auto add = [&](int32_t members, int32_t gpus) {
    if (members == 0) return;
    parts.push_back(part);
    parts.back().member_count = members;
    parts.back().gpu_count = gpus;
  };
  add(larger, each + 1);
  add(nodes - larger, each);
  return parts;
}

bool supported(const State& state, const std::vector<Part>& parts) {
  if (parts.empty() || parts.front().may_span_nodes) return false;
  const bool plain = parts.size() == 1 && parts.front().member_count == 1 && parts.front().member_max == 0;
  if (!plain && !sound_gang(state, parts)) return false;
  return std::all_of(parts.begin(), parts.end(), [](const Part& part) {
    return part.gpu_count >= 0 && part.gpu_count <= limits::kGpusPerJobMax && part.gpu_memory_mb >= 0 &&
           part.gpu_memory_mb <= limits::kMegabytesMax && part.cpu_milli >= 0 && part.memory_mb >= 0 &&
           part.memory_mb <= limits::kMegabytesMax && part.has_sound_share();
  });
}

std::optional<Rejection> check_parts(const State& state, const std::vector<Part>& parts) {
  if (!supported(state, parts)) return Rejection{.code = RejectionCode::kPartsUnsupported};
  for (const Part& part : parts) {
    const RequestFlaw flaw = flaw_of(part);
    if (flaw != RequestFlaw::kNone)
      return Rejection{.code = RejectionCode::kContradiction, .requested = static_cast<int64_t>(flaw)};
  }
  return std::nullopt;
}

/// The job of the array of which this is an element that is no job yet; null when it is none.
const Job* array_of_waiting(const State& state, JobId element) {
  const JobArray* array = state.array_of_element(element);
  if (array == nullptr || array->is_expanded(array->position_of(element))) return nullptr;
  return state.jobs.find(array->id);
}

/// Whether a new dependency on `parent` is met already; one that never can be is not, and is settled later.
bool is_met(const State& state, const Job& parent, DependencyKind kind) {
  switch (kind) {
    case DependencyKind::kAfterOk:
      return parent.state == JobState::kCompleted;
    case DependencyKind::kAfterAny:
      return is_final(parent.state);
    case DependencyKind::kAfterStart:
      if (parent.is_array()) return state.array_at(parent.id).started;
      return parent.ever_started || parent.started_at.valid();
  }
  UNREACHABLE();
}

/// Names the parents of job `index` of the submission by their ids, and looks each up.
std::optional<Rejection> resolve_dependencies(const State& state, const SubmitJobs& command,
                                              std::size_t index, Stamp stamp, JobFlow& flow) {
  for (Dependency& one : flow.dependencies) {
    if (one.index) {
      if (*one.index >= index) return Rejection{.code = RejectionCode::kDependencyInvalid};
      uint64_t before = 0;
      for (uint32_t other = 0; other < *one.index; ++other) before += command.jobs[other].sequence_count();
      one.parent = JobId{stamp.sequence + before};
      one.index.reset();
    } else {
      const Job* parent = state.jobs.find(one.parent);
      const Job* waiting = parent == nullptr ? array_of_waiting(state, one.parent) : nullptr;
      const bool expected = waiting != nullptr && waiting->tenant == command.tenant;
      if (!expected && (parent == nullptr || parent->tenant != command.tenant)) {
        return Rejection{.code = RejectionCode::kDependencyNotFound,
                         .requested = static_cast<int64_t>(one.parent.value)};
      }
      if (expected && state.config.feature_level < 4) continue;
      one.met = parent != nullptr && is_met(state, *parent, one.kind);
    }
    const auto same = std::count_if(flow.dependencies.begin(), flow.dependencies.end(),
                                    [&](const Dependency& other) { return other.parent == one.parent; });
    if (same > 1) return Rejection{.code = RejectionCode::kDependencyInvalid};
  }
  return std::nullopt;
}

/// A job that is to start at once must be small, short and ready to start.
std::optional<Rejection> check_interactive(const State& state, const JobRequest& request) {
  const EngineConfig& config = state.config;
  const int64_t gpus = amount_of(total_of(request.parts), Resource::kGpus);
  Rejection refused{.code = RejectionCode::kNotInteractive};
  if (config.interactive_wait.ns == 0 || gpus > config.interactive_gpus_max) {
    refused.resource = Resource::kGpus;
    refused.requested = gpus;
    refused.limit = config.interactive_wait.ns == 0 ? 0 : config.interactive_gpus_max;
    return refused;
  }
  if (request.max_runtime.ns == 0 || request.max_runtime > config.interactive_runtime_max) {
    refused.requested = request.max_runtime.ms() / 1000;
    refused.limit = config.interactive_runtime_max.ms() / 1000;
    return refused;
  }
  if (request.held) return refused;
  for (const JobFlow& flow : request.flow) {
    const bool later = flow.begin_at.valid() || flow.begin_after.ns > 0;
    if (later || !flow.dependencies.empty() || !flow.array.empty()) return refused;
  }
  return std::nullopt;
}

/// Checks of a new job that hold for a change too: those of an interactive job, and those of a job that some
/// node must be able to run.
std::optional<Rejection> check_change(const State& state, const Job& job, const UpdateJob& command,
                                      Time now) {
  const bool parts = (command.given & kJobParts) != 0;
  if (parts && job.require_feasible) {
    if (auto problem = Feasibility(state).check(command.parts)) return problem;
  }
  const bool runtime = (command.given & kJobMaxRuntime) != 0;
  const bool begin = (command.given & kJobBegin) != 0 && state.config.feature_level >= 11;
  if (job.interactive && (parts || runtime || begin) &&
      !(command.may_raise && job.state != JobState::kPending)) {
    JobRequest asked{.parts = parts ? command.parts : state.class_of(job).parts,
                     .max_runtime = runtime ? command.max_runtime : job.max_runtime};
    if (begin) asked.flow = {{.begin_at = command.begin_at, .begin_after = command.begin_after}};
    if (auto problem = check_interactive(state, asked)) return problem;
  }
  if (!runtime || command.may_raise || command.job != job.id) return std::nullopt;  // Else it is no job yet.
  if (!job.is_array()) return check_longer(state, job, command.max_runtime, now);
  for (const JobId element : state.array_at(job.id).live) {
    if (auto problem = check_longer(state, state.job_at(element), command.max_runtime, now)) return problem;
  }
  return std::nullopt;
}

/// Times instead of spans; none for a begin that is over.
std::optional<Rejection> resolve_times(JobFlow& flow, Time now) {
  if (flow.begin_after.ns > 0) flow.begin_at = now + flow.begin_after;
  if (flow.deadline_after.ns > 0) flow.deadline = now + flow.deadline_after;
  flow.begin_after = {};
  flow.deadline_after = {};
  if (flow.begin_at <= now) flow.begin_at = {};
  if (flow.deadline.valid() && flow.deadline <= std::max(now, flow.begin_at))
    return Rejection{.code = RejectionCode::kDeadlinePassed};
  return std::nullopt;
}

/// The times that the change gives the job, and those that it leaves. One that is to start at once does not
/// come to wait longer.
JobFlow times_of(const State& state, const Job& job, const UpdateJob& command, Time now) {
  JobFlow times{.begin_at = command.begin_at,
                .begin_after = command.begin_after,
                .deadline = command.deadline,
                .deadline_after = command.deadline_after};
  if ((command.given & kJobBegin) == 0) times.begin_at = job.not_before, times.begin_after = {};
  if ((command.given & kJobDeadline) == 0) times.deadline = job.deadline, times.deadline_after = {};
  if (!job.interactive || !job.deadline.valid() || state.config.feature_level < 11) return times;
  if (times.deadline_after.ns > 0) times.deadline = now + times.deadline_after;
  times.deadline_after = {};
  times.deadline = times.deadline.valid() ? std::min(times.deadline, job.deadline) : job.deadline;
  return times;
}

bool has_flow(const JobRequest& request) { return request.interactive || !request.flow.empty(); }

/// The flow that the job asked for; an interactive job also gets the time by which it must have begun.
JobFlow flow_of(const State& state, const JobRequest& request, Time now) {
  JobFlow flow = request.flow.empty() ? JobFlow{} : request.flow.front();
  if (!request.interactive) return flow;
  const Time over = now + state.config.interactive_wait;
  if (flow.deadline_after.ns > 0) flow.deadline = now + flow.deadline_after;
  flow.deadline_after = {};
  flow.deadline = flow.deadline.valid() ? std::min(flow.deadline, over) : over;
  return flow;
}

/// Digest by which repetitions are compared. It leaves out the trace: each try has one of its own.
uint64_t body_digest(const SubmitJobs& command) {
  Digest body;
  body.mix(command.tenant.value);
  for (const JobRequest& job : command.jobs) {
    const std::string_view untraced = without_trace(job.spec.view());
    if (untraced.size() == job.spec.view().size()) {
      mix_fields(body, job);
      continue;
    }
    JobRequest same = job;
    same.spec = Blob(untraced);
    mix_fields(body, same);
  }
  return body.value();
}

/// The jobs that would wait by it; of an array its elements are what waits.
int64_t waiting_by(const SubmitJobs& command) {
  int64_t waiting = 0;
  for (const JobRequest& job : command.jobs)
    waiting += std::max<int64_t>(int64_t{job.sequence_count()} - 1, 1);
  return waiting;
}

/// The answer to a request whose key is known: the same again, or a conflict.
std::optional<Applied> answer_before(const State& state, const SubmitJobs& command, uint64_t body) {
  const RememberedRequest* known = remembered_request(state, command);
  if (known == nullptr) return std::nullopt;
  if (known->body_digest != body) return reject(RejectionCode::kRequestKeyConflict);
  return Applied{.rejection = {}, .first_id = known->first_id, .id_count = known->id_count, .repeated = true};
}

/// The jobs' owner, and whose key it is.
JobOwner owner_of(const State& state, const SubmitJobs& command) {
  if (state.config.feature_level < 9) return {};
  return {.kind = command.owner_kind, .name = command.owner};
}

RequestRemembered remembered(const SubmitJobs& command, const JobOwner& owner, uint64_t body, Stamp stamp) {
  return {.request = RememberedRequest{.tenant = command.tenant,
                                       .key = command.request_key,
                                       .body_digest = body,
                                       .first_id = stamp.sequence,
                                       .id_count = static_cast<uint32_t>(command.jobs.size()),
                                       .at = stamp.at},
          .owner_kind = owner.kind,
          .owner = owner.name};
}

}  // namespace

WorkClass kind_of_work(WorkClass given, int64_t effective_priority) {
  if (given != WorkClass::kUnset) return given;
  return effective_priority >= limits::kOnlinePriority ? WorkClass::kOnline : WorkClass::kBatch;
}

Applied submit_jobs(const State& state, const SubmitJobs& command, Stamp stamp, Events& events) {
  const bool keyed = !command.request_key.empty();
  const uint64_t body = keyed ? body_digest(command) : 0;
  if (keyed) {
    if (const auto answer = answer_before(state, command, body)) return *answer;
  }
  const Tenant* tenant = state.find_tenant(command.tenant);
  if (tenant == nullptr || tenant->deleted) return reject(RejectionCode::kTenantNotFound);
  if (command.jobs.empty()) return reject(RejectionCode::kPartsUnsupported);
  Feasibility feasibility(state);
  std::vector<JobFlow> flows;                          // For each job that has one, in order.
  std::map<std::size_t, std::vector<Part>> own_parts;  // Parts that differ from those asked for, by job.
  for (std::size_t i = 0; i < command.jobs.size(); ++i) {
    const JobRequest& request = command.jobs[i];
    const bool divides = request.parts.size() == 1 && request.parts.front().may_span_nodes;
    if (divides) own_parts[i] = divided(state, request.parts.front());
    const std::vector<Part>& parts = divides ? own_parts[i] : request.parts;
    std::optional<Rejection> problem = check_parts(state, parts);
    if (!problem) problem = over_quota(state, command.tenant, total_of(parts), false);
    if (!problem && request.require_feasible) problem = feasibility.check(parts);
    if (!problem && !request.booking.empty()) {
      if (!divides) own_parts[i] = request.parts;
      problem = book(state, command, request.booking, own_parts[i]);
    }
    if (!problem && request.interactive) problem = check_interactive(state, request);
    if (!problem && has_flow(request)) {
      JobFlow& flow = flows.emplace_back(flow_of(state, request, stamp.at));
      problem = resolve_dependencies(state, command, i, stamp, flow);
      if (!problem) problem = resolve_times(flow, stamp.at);
    }
    if (!problem) continue;
    problem->index = static_cast<uint32_t>(i);
    return reject(*problem);
  }
  const auto count = static_cast<int64_t>(command.jobs.size());
  const JobOwner owner = owner_of(state, command);
  if (const auto refusal = admit(state, command, waiting_by(command), stamp.at, events))
    return reject(*refusal);
  auto flow = flows.begin();
  uint64_t next_id = stamp.sequence;
  for (std::size_t i = 0; i < command.jobs.size(); ++i) {
    const JobRequest& request = command.jobs[i];
    const int64_t effective = int64_t{request.priority} + tenant->priority_tier;
    events.push_back(JobSubmitted{.job = JobId{next_id},
                                  .tenant = command.tenant,
                                  .request = request,
                                  .order_key = order_key_of(effective, state.config.aging_per_hour, stamp.at),
                                  .at = stamp.at,
                                  .by = command.by,
                                  .owner_kind = owner.kind,
                                  .owner = owner.name});
    if (const auto own = own_parts.find(i); own != own_parts.end())
      std::get<JobSubmitted>(events.back()).request.parts = std::move(own->second);
    if (state.config.pools.on()) {
      for (Part& part : std::get<JobSubmitted>(events.back()).request.parts)
        part.work = kind_of_work(part.work, effective);
    }
    next_id += request.sequence_count();
    if (has_flow(request)) std::get<JobSubmitted>(events.back()).request.flow = {std::move(*flow++)};
  }
  if (keyed) events.push_back(remembered(command, owner, body, stamp));
  return {.rejection = {}, .first_id = stamp.sequence, .id_count = static_cast<uint32_t>(count)};
}

namespace {

/// The job that a command is about. An element that is no job yet becomes one by it, which waits for its
/// turn: `subject` is its array then, and `added` says so first.
struct Subject {
  const Job* job = nullptr;
  std::optional<ElementAdded> added;
  std::optional<RejectionCode> refusal;
};
Subject subject_of(const State& state, JobId id, TenantId tenant, Time at) {
  const bool parks = state.config.feature_level >= 6;
  Subject subject{.job = state.jobs.find(id)};
  if (subject.job == nullptr) {
    subject.job = array_of_waiting(state, id);
    if (subject.job == nullptr) return {.refusal = RejectionCode::kJobNotFound};
    if (state.array_at(subject.job->id).closed != JobReason::kNone)
      subject.refusal = RejectionCode::kJobFinished;
    subject.added = ElementAdded{.job = id, .array = subject.job->id, .at = at, .parked = parks};
  } else if (is_final(subject.job->state)) {
    subject.refusal = RejectionCode::kJobFinished;
  }
  if (tenant.valid() && tenant != subject.job->tenant) subject.refusal = RejectionCode::kJobNotFound;
  return subject;
}

/// The array of an element that has not had its turn; null: it is none.
const Job* waits_for_array(const State& state, const Subject& subject) {
  if (subject.added) return subject.job;
  return subject.job->parked ? state.jobs.find(subject.job->array) : nullptr;
}

Applied accepted_about(JobId job) { return {.rejection = {}, .first_id = job.value, .id_count = 1}; }

/// Notes who asked for what; an older journal knows neither.
void note_asked(const State& state, JobId job, JobStep step, const std::string& by, Time at, Events& events) {
  if (state.config.feature_level < 7 || by.empty()) return;
  events.push_back(JobAsked{.job = job, .step = step, .by = by, .at = at});
}

void cancel(const Job& job, Time at, Events& events) {
  if (job.state == JobState::kPending) {
    events.push_back(JobFinished{.job = job.id,
                                 .state = JobState::kCancelled,
                                 .reason = JobReason::kCancelled,
                                 .outcome = {},
                                 .at = at});
  } else if (!job.cancel_requested) {  // Else its end is under way.
    events.push_back(
        StopRequested{.job = job.id, .attempt = job.attempt_count, .reason = StopReason::kCancel});
  }
}

/// Calls `visit(const Job&)` for each element of the array that is a job and has not ended.
template <typename Visit>
void for_each_live(const State& state, const Job& array_job, Visit&& visit) {
  const JobArray& array = state.array_at(array_job.id);
  for (const JobId id : array.live) visit(state.job_at(id));
  for (const JobId id : array.parked) visit(state.job_at(id));
}

}  // namespace

Applied cancel_job(const State& state, const CancelJob& command, Stamp stamp, Events& events) {
  const Subject subject = subject_of(state, command.job, command.tenant, stamp.at);
  if (subject.refusal) return reject(*subject.refusal);
  if (subject.added) {
    events.push_back(*subject.added);
    note_asked(state, command.job, JobStep::kCancelAsked, command.by, stamp.at, events);
    events.push_back(JobFinished{.job = command.job,
                                 .state = JobState::kCancelled,
                                 .reason = JobReason::kCancelled,
                                 .outcome = {},
                                 .at = stamp.at});
  } else if (subject.job->cancel_requested) {
    return accepted_about(command.job);  // Its end is under way, and who came first is named.
  } else if (!subject.job->is_array()) {
    note_asked(state, command.job, JobStep::kCancelAsked, command.by, stamp.at, events);
    cancel(*subject.job, stamp.at, events);
  } else {
    note_asked(state, command.job, JobStep::kCancelAsked, command.by, stamp.at, events);
    events.push_back(ArrayClosed{.job = command.job, .reason = JobReason::kCancelled, .at = stamp.at});
    for_each_live(state, *subject.job, [&](const Job& job) { cancel(job, stamp.at, events); });
  }
  return accepted_about(command.job);
}

Applied update_job(const State& state, const UpdateJob& command, Stamp stamp, Events& events) {
  const Subject subject = subject_of(state, command.job, command.tenant, stamp.at);
  if (subject.refusal) return reject(*subject.refusal);
  const Job* job = subject.job;
  const bool reorders = (command.given & kJobPriority) != 0;
  const bool waits_only = (command.given & (kJobPriority | kJobBegin | kJobParts)) != 0;
  if (waits_only && job->state != JobState::kPending) return reject(RejectionCode::kJobNotWaiting);
  if ((command.given & kJobParts) != 0) {
    // The same checks as for a new job.
    if (const auto problem = check_parts(state, command.parts)) return reject(*problem);
    if (const auto over = over_quota(state, job->tenant, total_of(command.parts), false))
      return reject(*over);
  }
  if (state.config.feature_level >= 10) {
    if (const auto problem = check_change(state, *job, command, stamp.at)) return reject(*problem);
  }
  JobUpdated updated{.change = command};
  for (Part& part : updated.change->parts) part.booking = state.class_of(*job).parts.front().booking;
  if ((command.given & (kJobBegin | kJobDeadline)) != 0) {
    JobFlow times = times_of(state, *job, command, stamp.at);
    if (const auto problem = resolve_times(times, stamp.at)) return reject(*problem);
    updated.change->begin_at = times.begin_at;
    updated.change->deadline = times.deadline;
    updated.change->begin_after = {};
    updated.change->deadline_after = {};
  }
  for (Part& part : updated.change->parts) {
    if (part.work == WorkClass::kUnset) part.work = work_of(state.class_of(*job).parts);
  }
  if (reorders) {
    const Tenant* tenant = state.find_tenant(job->tenant);
    CHECK(tenant != nullptr);
    const int64_t effective = int64_t{command.priority} + tenant->priority_tier;
    updated.order_key = order_key_of(effective, state.config.aging_per_hour, job->submitted_at);
  }
  if (subject.added) events.push_back(*subject.added);
  note_asked(state, command.job, JobStep::kChangeAsked, command.by, stamp.at, events);
  keep_avoided(state, *job, updated.change->parts);
  events.push_back(updated);
  if (job->is_array() && !subject.added) {
    for_each_live(state, *job, [&](const Job& element) {
      JobUpdated of_element = updated;
      of_element.change->job = element.id;
      keep_avoided(state, element, of_element.change->parts);
      of_element.change->given &= ~uint32_t{kJobBegin};
      if (element.state != JobState::kPending)
        of_element.change->given &= ~uint32_t{kJobPriority | kJobParts};
      if (of_element.change->given != 0) events.push_back(std::move(of_element));
    });
  }
  return accepted_about(command.job);
}

Applied hold_job(const State& state, const HoldJob& command, Stamp stamp, Events& events) {
  const Subject subject = subject_of(state, command.job, command.tenant, stamp.at);
  if (subject.refusal) return reject(*subject.refusal);
  const Job& job = *subject.job;
  const JobStep step = command.held ? JobStep::kHoldAsked : JobStep::kReleaseAsked;
  if (const Job* array = waits_for_array(state, subject); array != nullptr && array->held && !command.held) {
    if (state.config.feature_level >= 10)
      return reject({.code = RejectionCode::kArrayHeld, .requested = static_cast<int64_t>(array->id.value)});
  }
  if (subject.added) {
    if (!command.held) return accepted_about(command.job);
    events.push_back(*subject.added);
    note_asked(state, command.job, step, command.by, stamp.at, events);
    events.push_back(JobHoldChanged{.job = command.job, .held = true});
    return accepted_about(command.job);
  }
  if (job.state != JobState::kPending) return reject(RejectionCode::kJobNotWaiting);
  note_asked(state, command.job, step, command.by, stamp.at, events);
  if (job.held != command.held) events.push_back(JobHoldChanged{.job = job.id, .held = command.held});
  if (job.is_array()) {
    for_each_live(state, job, [&](const Job& element) {
      if (element.state == JobState::kPending && element.held != command.held)
        events.push_back(JobHoldChanged{.job = element.id, .held = command.held});
    });
  }
  return accepted_about(command.job);
}

Applied requeue_job(const State& state, const RequeueJob& command, Stamp stamp, Events& events) {
  const Subject subject = subject_of(state, command.job, command.tenant, Time{});
  if (subject.refusal) return reject(*subject.refusal);
  const Job* job = subject.job;
  if (subject.added || job->state == JobState::kPending) return reject(RejectionCode::kJobNotPlaced);
  const Attempt* attempt = state.find_attempt(job->id, job->attempt_count);
  CHECK(attempt != nullptr);
  if (attempt->stop != StopReason::kNone && attempt->stop != StopReason::kRequeue)
    return reject(RejectionCode::kStale);
  if (attempt->stop == StopReason::kNone) {
    note_asked(state, command.job, JobStep::kRequeueAsked, command.by, stamp.at, events);
    events.push_back(
        StopRequested{.job = job->id, .attempt = attempt->number, .reason = StopReason::kRequeue});
  }
  return {.rejection = {}, .first_id = job->id.value, .id_count = 1};
}

}  // namespace gpusched::rules
