#include "api/views/state_views.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <set>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/fields/place_words.h"
#include "api/views/job_sentences.h"
#include "api/views/place_in_line.h"
#include "api/views/rights.h"
#include "api/views/usage_view.h"
#include "base/digest.h"
#include "base/node_labels.h"
#include "base/utf8.h"
#include "engine/messages/rejection_rows.h"
#include "engine/planner/planner.h"
#include "model/topology.h"

namespace gpusched::api {
namespace {

/// Why a job waits while starts are paused, whatever else it would wait for.
constexpr std::string_view kPausedCode = "paused";

/// The kind of error that clients are told for a rejection.
ErrorKind kind_of(RejectionCode code) {
  static const std::vector<ErrorKind> kinds = [] {
    std::vector<ErrorKind> all;
    for (const RejectionRow& row : rejection_rows()) {
      const std::optional<ErrorKind> kind = kind_of_code(row.client_code);
      CHECK(kind.has_value());
      all.push_back(*kind);
    }
    return all;
  }();
  return kinds.at(static_cast<std::size_t>(code) - 1);
}

/// Not valid where the clock's time is none.
Time wall_of(std::chrono::steady_clock::time_point at) {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  if (at.time_since_epoch().count() == 0) return {};
  const auto since = std::chrono::steady_clock::now() - at;
  return {duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch() - since).count()};
}

uint64_t version_of(const Job& job) {
  Digest digest;
  for (const uint64_t word :
       {static_cast<uint64_t>(job.state), static_cast<uint64_t>(job.reason), uint64_t{job.attempt_count},
        uint64_t{job.cancel_requested}, static_cast<uint64_t>(job.started_at.ns),
        static_cast<uint64_t>(job.ended_at.ns), static_cast<uint64_t>(job.not_before.ns), uint64_t{job.held},
        static_cast<uint64_t>(job.priority), static_cast<uint64_t>(job.max_runtime.ns), uint64_t{job.unmet},
        static_cast<uint64_t>(job.deadline.ns), static_cast<uint64_t>(job.extras->watch)}) {
    digest.mix(word);
  }
  return digest.value();
}

std::optional<int64_t> limit_of(const Limits& limits, Resource resource) {
  const int64_t limit = limits.get(resource);
  return limit == Limits::kUnlimited ? std::nullopt : std::optional(limit);
}

}  // namespace

Answer<AttemptPlace> place_of(const State& state, const Job& job, uint32_t attempt, uint32_t member) {
  AttemptPlace place{.attempt = attempt == 0 ? job.attempt_count : attempt, .node = {}};
  if (place.attempt == 0)
    return ApiError{ErrorKind::kLogNotFound,
                    "the job has not started yet, so it has no output and no files; wait until it runs"};
  if (place.attempt > job.attempt_count) {
    return ApiError{ErrorKind::kLogNotFound,
                    "the job has had " + std::to_string(job.attempt_count) +
                        (job.attempt_count == 1 ? " attempt" : " attempts") + "; request one of them",
                    "attempt"};
  }
  const Attempt* held = state.find_attempt(job.id, place.attempt);
  if (held == nullptr) {
    if (member != 0) {
      if (place.attempt == job.attempt_count) place.node = job.node_of_member(member);
      if (place.node.valid()) return place;
      return ApiError{ErrorKind::kLogNotFound,
                      "no such member, or its node is no longer recorded: for attempts before the latest, "
                      "only the node of the first member is kept",
                      "member"};
    }
    place.node = job.node_of_attempt(place.attempt);
    // A job from before nodes were remembered.
    if (!place.node.valid() && job.extras->past_nodes.empty()) place.node = job.node;
    if (place.node.valid()) return place;
    return ApiError{ErrorKind::kLogNotFound,
                    "the node of attempt " + std::to_string(place.attempt) +
                        " is no longer recorded; only the last 16 attempts are kept",
                    "attempt"};
  }
  if (member >= held->members.size()) {
    return ApiError{ErrorKind::kLogNotFound,
                    "the attempt has " + std::to_string(held->members.size()) +
                        (held->members.size() == 1 ? " member" : " members") + "; they are numbered from 0",
                    "member"};
  }
  place.node = held->members[member].node;
  place.running = held->members[member].state == MemberState::kRunning;
  return place;
}

namespace {

JobPart part_view(const Part& part) {
  return {.members = part.member_count,
          .members_max = part.is_elastic() ? part.member_max : 0,
          .gpu_count = part.gpu_count,
          .gpu_milli = part.gpu_milli,
          .gpu_memory_mb = part.is_share() ? part.gpu_share_mb : part.gpu_memory_mb * part.gpu_count,
          .gpu_model = part.gpu_model,
          .cpu_milli = part.cpu_milli,
          .memory_mb = part.memory_mb};
}

std::string_view word_of(MemberState state) {
  switch (state) {
    case MemberState::kPlaced:
      return "placed";
    case MemberState::kPrepared:
      return "prepared";
    case MemberState::kRunning:
      return "running";
    case MemberState::kEnded:
      return "ended";
  }
  UNREACHABLE();
}

/// Adds the fields of a job of several members; for one that is over the places where they were.
void add_gang(const State& state, const Job& job, const JobDetails& details, JobView& out) {
  const std::vector<Part>& parts = state.class_of(job).parts;
  if (!is_gang(parts)) return;
  for (const Part& part : parts) out.parts.push_back(part_view(part));
  out.one_member_per_node = parts.front().one_member_per_node;
  out.domain = parts.front().domain;
  out.domain_required = parts.front().domain_required;
  if (!details.gpus || job.attempt_count == 0 || job.state == JobState::kPending) return;
  const Attempt* attempt = state.find_attempt(job.id, job.attempt_count);
  if (attempt == nullptr) {
    for (uint32_t i = 0; job.node_of_member(i).valid(); ++i) {
      const Node* node = state.find_node(job.node_of_member(i));
      out.members.push_back({.state = {}, .node_name = node == nullptr ? "" : node->name, .gpus = {}});
    }
    return;
  }
  out.gpus.clear();
  for (const Member& member : attempt->members) {
    const Node* node = state.find_node(member.node);
    JobMember& shown = out.members.emplace_back();
    shown.part = static_cast<int32_t>(member.part);
    shown.state = word_of(member.state);
    shown.node_name = node->name;
    for (uint64_t mask = member.device_mask; mask != 0; mask &= mask - 1)
      shown.gpus.push_back(gpu_name(node->name, static_cast<uint32_t>(std::countr_zero(mask))));
    out.gpus.insert(out.gpus.end(), shown.gpus.begin(), shown.gpus.end());
  }
}

void add_past(const State& state, const Job& job, JobView& out) {
  out.moved_at = job.extras->moved_at;
  out.usage = usage_view(job.last_usage());
  out.submitted_by = utf8_cleaned(job.submitted_by.view());
  out.owner = owner_text(state, job);
}

}  // namespace

JobView view_of(const Observer::View& view, const Job& job, const Viewer& viewer, const JobDetails& details) {
  const State& state = view.state;
  const Part& part = state.class_of(job).parts.front();
  const Node* node = job.state != JobState::kPending ? state.find_node(job.node) : nullptr;
  JobView out{.id = job.id,
              .tenant = job.tenant,
              .spec = without_secrets(job.spec),
              .state = job.state,
              .reason = job.reason,
              .cause = job.last_cause,
              .priority = job.priority,
              .gpu_count = part.gpu_count,
              .gpu_milli = part.gpu_milli,
              .mig_profile = part.mig_profile,
              .gpu_memory_mb = part.is_share() ? part.gpu_share_mb : part.gpu_memory_mb * part.gpu_count,
              .gpu_model = models_text(part.gpu_model, part.place),
              .place = part.place,
              .cpu_milli = part.cpu_milli,
              .memory_mb = part.memory_mb,
              .max_runtime = job.max_runtime,
              .exit_code_retries = job.retry.exit_code_retries,
              .system_retries = job.retry.system_retries,
              .overlap_allowed = job.retry.overlap_allowed,
              .tolerates_node_loss = job.retry.tolerates_node_loss,
              .kill_after_lost_contact = job.retry.kill_after_lost_contact,
              .held = job.held,
              .submitted_at = job.submitted_at,
              .scheduled_at = job.scheduled_at,
              .started_at = job.started_at,
              .completed_at = job.ended_at,
              .checkpointed_at = job.extras->saved_at,
              .signal = is_final(job.state) ? job.signal : 0,
              .attempts = static_cast<int32_t>(job.attempt_count),
              .preempted_count = static_cast<int32_t>(job.extras->preempt_count),
              .preemption_mode = job.preemption_mode,
              .work = work_of(state.class_of(job).parts),
              .version = version_of(job)};
  if (const uint64_t booking = view.state.class_of(job).parts.front().booking; booking != 0) {
    const Booking* found = view.state.find_booking(BookingId{booking});
    out.reservation = found != nullptr ? found->name : reservation_name(booking);
  }
  if (details.name) out.name = peek_spec(job.spec.view()).name;
  if (details.message) out.message = utf8_cleaned(message_of(view, job, node, viewer));
  if (is_final(job.state) && job.last_cause == EndCause::kExited) out.exit_code = job.exit_code;
  if (node != nullptr) {
    out.node_name = node->name;
    for (uint64_t mask = details.gpus ? job.device_mask : 0; mask != 0; mask &= mask - 1) {
      out.gpus.push_back(gpu_name(node->name, static_cast<uint32_t>(std::countr_zero(mask))));
    }
  }
  const Attempt* attempt = node != nullptr && part.is_slice() && details.gpus
                               ? state.find_attempt(job.id, job.attempt_count)
                               : nullptr;
  if (attempt != nullptr) out.mig_start = attempt->members.front().mig_start;
  if (job.state == JobState::kRunning || job.reason == JobReason::kIdle || job.reason == JobReason::kHung) {
    out.watch = job.extras->watch;
    out.watch_detail = job.extras->watch_detail.view();
    out.watch_since = job.extras->watch_since;
  }
  out.is_being_cancelled = job.cancel_requested && !is_final(job.state);
  out.move_detail = utf8_cleaned(move_of(state, job, viewer));
  add_past(state, job, out);
  add_gang(state, job, details, out);
  add_flow(state, job, out);
  if (job.is_queued() && job.reason != JobReason::kArray) {
    out.wait_code = state.config.pause.on() ? kPausedCode : to_string(view.reason_of(job).code);
    if (details.place) out.queue_position = place_in_line(state, job, viewer);
  }
  return out;
}

ExplainView explain(const Observer::View& view, const Job& job, const Viewer& viewer) {
  const JobView shown = view_of(view, job, viewer);
  ExplainView out{.id = job.id,
                  .state = job.state,
                  .reason = shown.wait_code.empty() ? std::string(to_string(job.reason)) : shown.wait_code,
                  .message = shown.message,
                  .queue_position = shown.queue_position};
  if (job.held) {
    out.lifted_by = {"JobReleased"};
  } else if (job.state == JobState::kPending && !flow_message(view.state, job).empty()) {
    out.lifted_by = flow_lifted_by(view.state, job);
  } else if (job.is_queued() && view.state.config.pause.on()) {
    out.lifted_by = {"StartsResumed"};
  } else if (job.is_queued()) {
    const WaitReason& reason = view.reason_of(job);
    out.lifted_by = lifted_by(reason);
    out.message += nearest_of(view, job);
    // The first of the jobs that want the same is who it was promised to.
    if (view.state.class_of(job).waiting.front().job == job.id) out.estimated_start = reason.start;
  } else if (job.promised) {
    out.lifted_by = {"JobEnded"};
  } else if (job.state == JobState::kPending) {
    out.lifted_by = {"BackoffOver"};
  }
  return out;
}

namespace {

TenantSettings settings_of(const Tenant& tenant) {
  TenantSettings out{.name = tenant.name,
                     .email = tenant.email,
                     .organization = tenant.organization,
                     .max_gpus = limit_of(tenant.limits, Resource::kGpus),
                     .max_gpu_memory_mb = limit_of(tenant.limits, Resource::kGpuMemory),
                     .max_cpu_milli = limit_of(tenant.limits, Resource::kCpu),
                     .max_memory_mb = limit_of(tenant.limits, Resource::kMemory),
                     .max_concurrent_jobs = limit_of(tenant.limits, Resource::kJobs),
                     .priority_tier = tenant.priority_tier,
                     .weight_milli = tenant.weight_milli,
                     .allow_preemption = tenant.allow_preemption,
                     .can_preempt_others = tenant.can_preempt_others,
                     .anonymous = tenant.anonymous,
                     .guaranteed_gpus = tenant.guarantee.gpus,
                     .guaranteed_gpu_memory_mb = tenant.guarantee.gpu_memory_mb,
                     .guaranteed_cpu_milli = tenant.guarantee.cpu_milli,
                     .guaranteed_memory_mb = tenant.guarantee.memory_mb,
                     .guaranteed_jobs = tenant.guarantee.jobs};
  if (tenant.limits.waiting_max) out.max_waiting_jobs = tenant.limits.waiting();
  if (tenant.limits.soft_waiting_max) out.soft_waiting_jobs = tenant.limits.soft_waiting();
  if (tenant.gpu_time.limited()) {
    out.gpu_ms_max = tenant.gpu_time.max_ms;
    out.gpu_window_ms = tenant.gpu_time.length.ms();
  }
  return out;
}

}  // namespace

TenantView view_of(const Tenant& tenant, Time now) {
  TenantView out{.id = tenant.id,
                 .parent = tenant.parent,
                 .settings = settings_of(tenant),
                 .current_gpu_milli = tenant.usage.gpu_milli,
                 .current_gpus = tenant.usage.gpus,
                 .current_gpu_memory_mb = tenant.usage.gpu_memory_mb,
                 .current_cpu_milli = tenant.usage.cpu_milli,
                 .current_memory_mb = tenant.usage.memory_mb,
                 .running_jobs = tenant.usage.jobs,
                 .waiting_jobs = tenant.waiting,
                 .gpu_milliseconds = tenant.gpu_ms,
                 .total_jobs = tenant.jobs_total,
                 .successful_jobs = tenant.jobs_successful,
                 .failed_jobs = tenant.jobs_failed,
                 .reclaims = tenant.reclaims,
                 .reclaim_ms = tenant.reclaim_ms,
                 .reclaim_ms_max = tenant.reclaim_ms_max,
                 .created_at = tenant.created_at,
                 .updated_at = tenant.updated_at};
  if (tenant.gpu_time.limited()) {
    out.gpu_ms_used = tenant.gpu_time.used_by(now, tenant.usage);
    out.gpu_window_ends = tenant.gpu_time.end_of_window(now);
  }
  return out;
}

std::string life_of(const Node& node) {
  if (node.state != NodeState::kReady) return "down";
  switch (node.availability) {
    case Availability::kInService:
      return "ready";
    case Availability::kValidating:
      return "validating";
    case Availability::kDraining:
      return node.attempts.empty() ? "drained" : "draining";
  }
  UNREACHABLE();
}

namespace {

std::vector<Label> labels_of(const Node& node) {
  std::map<std::string, std::string> labels;
  for (const Label& label : node.agent_labels) labels[label.name] = label.value;
  for (const Label& label : node.labels) labels[label.name] = label.value;
  // Every node has its name as a label; whoever sees the labels sees the name.
  if (const auto own = labels.find(std::string(kNodeNameLabel));
      own != labels.end() && own->second == node.name)
    labels.erase(own);
  std::vector<Label> out;
  for (auto& [name, value] : labels) out.push_back({.name = name, .value = value});
  return out;
}

}  // namespace

void add_silence(const State& state, JobView& shown, const Job& job, const TelemetryTable& telemetry) {
  const Node* node = job.node.valid() ? state.find_node(job.node) : nullptr;
  const bool on_it = job.state == JobState::kScheduled || job.state == JobState::kRunning;
  if (node == nullptr || !on_it || !is_silent(*node)) return;
  const Time heard = wall_of(telemetry.get(node->id).heard);
  if (heard.valid()) shown.message = utf8_cleaned(silence_of(*node, job, heard));
}

void add_preparation(JobView& shown, const Job& job, const TelemetryTable& telemetry) {
  if (job.state != JobState::kScheduled || !job.node.valid()) return;
  const NodeTelemetry last = telemetry.get(job.node);
  const auto found = last.preparing.find({.job = job.id, .attempt = job.attempt_count, .member = 0});
  if (found != last.preparing.end()) shown.message = found->second;
}

// Shows why a device gets no new work. An operator's word stands over the driver's, and that over heat.
void show_fitness(const Device& device, DeviceView& shown) {
  if (device.hot && device.condition == DeviceCondition::kOk) {
    shown.condition = "hot";
    if (device.state != DeviceState::kQuarantined)
      shown.detail = "too hot for new jobs: " + device.hot_detail;
  }
  if (device.fault != FaultClass::kNone) {
    shown.fault = device.fault;
    shown.fault_code = device.fault_code;
    shown.fault_detail = device.fault_detail;
    shown.fault_at = device.fault_at;
  }
  if (device.fault >= FaultClass::kDrain) {
    shown.quarantined_by = "scheduler";
    shown.quarantine_reason = device.fault_code + " (" + std::string(to_string(device.fault)) + ")";
    if (!device.fault_detail.empty()) shown.quarantine_reason += ", " + device.fault_detail;
    if (device.condition == DeviceCondition::kOk) shown.condition = "faulty";
    if (device.state != DeviceState::kQuarantined)
      shown.detail = shown.quarantine_reason + (shown.detail.empty() ? "" : "; " + shown.detail);
    if (device.state == DeviceState::kFree) shown.state = to_string(DeviceState::kQuarantined);
  }
  if (device.state == DeviceState::kQuarantined) {
    shown.quarantined_by = "scheduler";
    shown.quarantine_reason = device.detail;
  }
  if (!device.barred) return;
  shown.quarantined_by = device.barred_by.empty() ? "operator" : utf8_cleaned(device.barred_by);
  shown.quarantine_reason = utf8_cleaned(device.barred_detail);
  shown.condition = to_string(DeviceCondition::kUnhealthy);
  shown.detail = "quarantined by " + shown.quarantined_by;
  if (!device.barred_detail.empty()) shown.detail += ": " + shown.quarantine_reason;
  if (device.state == DeviceState::kQuarantined) shown.detail += "; " + device.detail;
  if (device.state == DeviceState::kFree) shown.state = to_string(DeviceState::kQuarantined);
}

void show_slices(const DeviceClass& kind, const Device& device, DeviceView& shown) {
  shown.mig = kind.mig;
  const mig::Table* table = kind.table();
  if (table == nullptr) return;
  const bool takes_more = device.takes_shares() && !device.promised_to.valid();
  if (takes_more) shown.mig_room = mig::room_text(*table, mig::occupancy_of(device.slices(*table)));
  for (const Share& share : device.shares) {
    shown.slices.push_back({.job = share.held_by.job,
                            .profile = share.mig_profile,
                            .start = share.mig_start,
                            .draining = share.draining()});
  }
  std::sort(shown.slices.begin(), shown.slices.end(),
            [](const SliceView& a, const SliceView& b) { return a.start < b.start; });
}

/// How its devices are linked, and the islands that makes of them, numbered from 0.
void show_topology(const Node& node, NodeView& out) {
  out.topology_note = node.topology_note;
  const LinkMap links(node);
  std::map<uint64_t, int32_t> islands;
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const Device& device = node.devices[i];
    if (device.numa_node) out.devices[i].numa_node = *device.numa_node;
    out.devices[i].pci_bus_id = device.pci_bus_id;
    const uint64_t island = links.island_of(i);
    if (std::popcount(island) > 1)
      out.devices[i].island = islands.try_emplace(island, static_cast<int32_t>(islands.size())).first->second;
    for (std::size_t other = i + 1; other < node.devices.size(); ++other) {
      const Link link = links.between(i, other);
      if (link.kind == LinkKind::kUnknown && link.gbs == 0) continue;
      out.links.push_back({.from = static_cast<int32_t>(i),
                           .to = static_cast<int32_t>(other),
                           .kind = to_string(link.kind),
                           .bandwidth_gbs = link.gbs});
    }
  }
}

void show_holder(const State& state, const AttemptKey& key, int32_t milli, DeviceView& shown) {
  const Job* const job = state.jobs.find(key.job);
  if (job == nullptr) return;
  const Attempt* const attempt = state.find_attempt(key.job, key.attempt);
  shown.holders.push_back({.job = key.job,
                           .tenant = job->tenant,
                           .owner = owner_text(state, *job),
                           .since = attempt == nullptr ? Time{} : attempt->placed_at,
                           .milli = milli});
}

void show_holders(const State& state, const Device& device, DeviceView& shown) {
  if (device.state != DeviceState::kFree) {
    shown.held_by = device.held_by.job;
    if (device.held_by.job.valid()) show_holder(state, device.held_by, 0, shown);
  }
  if (device.shares.empty()) return;
  shown.milli_used = static_cast<int32_t>(device.milli_capacity - device.milli_left());
  shown.memory_mb_given = device.memory_mb - device.memory_mb_left();
  for (const Share& share : device.shares) {
    shown.shared_by.push_back(share.held_by.job);
    show_holder(state, share.held_by, share.milli, shown);
  }
}

NodeView view_of(const State& state, const Node& node, const NodeTelemetry& telemetry) {
  NodeView out{.id = node.id,
               .name = node.name,
               .contact = node.state,
               .state = life_of(node),
               .state_by = utf8_cleaned(node.availability_by),
               .state_reason = utf8_cleaned(node.availability_reason),
               .state_since = node.availability_since.valid() ? node.availability_since : node.state_since,
               .suspect = node.suspect_detail,
               .suspect_since = node.suspect_since,
               .boot_id = node.boot_id,
               .features = node.features,
               .labels = labels_of(node),
               .cpu_milli = node.cpu_milli,
               .cpu_milli_free = node.cpu_milli - node.cpu_milli_used,
               .memory_mb = node.memory_mb,
               .memory_mb_free = node.memory_mb - node.memory_mb_used,
               .attempts = static_cast<int32_t>(node.attempts.size()),
               .cpu_utilization = telemetry.cpu_utilization,
               .memory_utilization = telemetry.memory_utilization,
               .heard_at = wall_of(telemetry.heard),
               .version = node.version};
  if (node.state != NodeState::kReady) {
    out.state_by = node.state == NodeState::kDead ? "operator" : "scheduler";
    out.state_reason = node.state == NodeState::kDead ? "was declared dead" : "does not report";
    out.state_since = node.state_since;
    // Its lease ran out behind its last word.
    if (is_silent(node) && out.heard_at.valid() && out.heard_at < node.state_since)
      out.state_since = out.heard_at;
  }
  // The state keeps the order in which nodes came, over restarts; the place of a removed one is another's.
  const auto slot = static_cast<uint32_t>(&node - state.nodes.data());
  for (uint32_t i = 0; i < node.devices.size(); ++i) {
    const Device& device = node.devices[i];
    DeviceView shown{.index = i,
                     .uuid = device.uuid,
                     .model = state.device_classes[device.device_class].model,
                     .memory_mb = device.memory_mb,
                     .state = std::string(to_string(device.state)),
                     .condition = std::string(to_string(device.condition)),
                     .detail = device.detail};
    shown.gpu_id = static_cast<int32_t>(slot * limits::kDevicesPerNodeMax + i);
    show_fitness(device, shown);
    show_holders(state, device, shown);
    show_slices(state.device_classes[device.device_class], device, shown);
    if (i < telemetry.devices.size()) {
      const NodeTelemetry::Device& last = telemetry.devices[i];
      shown.utilization_percent = last.utilization_percent;
      shown.memory_used_mb = last.memory_used_mb;
      shown.temperature_celsius = last.temperature_celsius;
      if (device.state == DeviceState::kDraining && shown.detail.empty())
        shown.detail = last.draining_evidence;
    }
    out.devices.push_back(std::move(shown));
  }
  show_topology(node, out);
  return out;
}

ClusterView cluster_of(const State& state, const TelemetryTable& telemetry) {
  ClusterView out{.total_nodes = state.node_count(),
                  .total_jobs = static_cast<int64_t>(state.jobs.size()),
                  .running_jobs = state.count(JobState::kScheduled) + state.count(JobState::kRunning) +
                                  state.count(JobState::kPreempted),
                  .pending_jobs = state.waiting_count(),
                  .sequence = state.last.sequence};
  int64_t percent = 0;
  int64_t reporting = 0;
  for (const Node& node : state.nodes) {
    out.total_gpus += static_cast<int64_t>(node.devices.size());
    if (node.state != NodeState::kReady) continue;
    out.online_nodes += 1;
    out.available_gpus += std::popcount(node.free_mask);
    for (const NodeTelemetry::Device& device : telemetry.get(node.id).devices) {
      percent += device.utilization_percent;
      reporting += 1;
    }
  }
  if (reporting > 0)
    out.average_gpu_utilization = static_cast<double>(percent) / static_cast<double>(reporting) / 100.0;
  out.name = state.config.cluster;
  const Pause& pause = state.config.pause;
  out.paused_since = pause.since;
  out.paused_by = utf8_cleaned(pause.by);
  out.pause_reason = utf8_cleaned(pause.why);
  return out;
}

PoolsView pools_of(const State& state) {
  const PoolShares& shares = state.config.pools;
  PoolsView view{.on = shares.on(), .set = shares.set};
  for (const Node& node : state.nodes) view.total_gpus += node.in_service() ? std::ssize(node.devices) : 0;
  const auto pool = [&](bool online) {
    const int64_t milli = (online ? state.online : state.batch).milli;
    return PoolsView::Pool{.quota = view.on ? shares.gpus_of(online, view.total_gpus) : view.total_gpus,
                           .used = (milli + kMilliPerGpu - 1) / kMilliPerGpu};
  };
  view.online = pool(true);
  view.batch = pool(false);
  return view;
}

namespace {

/// Whether it is the user's by its owner, or by what its submitter called itself: "ana", "ana@desk".
bool is_of_user(const State& state, const Job& job, std::string_view user) {
  const JobOwner* const owner = state.owners.at(job.owner);
  if (owner != nullptr && owner->kind == access::CallerKind::kPerson) return owner->name == user;
  const std::string_view by = job.submitted_by.view();
  return by.substr(0, by.find('@')) == user;
}

}  // namespace

bool matches(const State& state, const Job& job, const JobFilter& filter) {
  if (filter.since.valid() && job.submitted_at < filter.since) return false;
  if (filter.online && *filter.online != (work_of(state.class_of(job).parts) == WorkClass::kOnline))
    return false;
  if (!filter.owner.empty() && owner_text(state, job) != filter.owner) return false;
  if (filter.name.empty() && filter.user.empty() && filter.labels.empty()) return true;
  const std::string_view spec = job.spec.view();
  if (!filter.name.empty() || !filter.user.empty()) {
    const SpecPeek peek = peek_spec(spec);
    std::string name(peek.name);
    const JobArray* array = job.is_element() ? state.find_array(job.array) : nullptr;
    if (array != nullptr) name += "-" + std::to_string(array->index_at(array->position_of(job.id)));
    if (!filter.name.empty() && !glob_matches(filter.name, name)) return false;
    if (!filter.user.empty() && peek.user != filter.user && peek.submitter != filter.user &&
        !is_of_user(state, job, filter.user))
      return false;
  }
  return std::all_of(filter.labels.begin(), filter.labels.end(),
                     [spec](const auto& label) { return spec_has_label(spec, label.first, label.second); });
}

ApiError to_api_error(const Rejection& rejection, std::size_t batch_size) {
  ApiError error{kind_of(rejection.code), describe(rejection), std::string(field_at_fault(rejection)),
                 rejection.retry_after};
  if (batch_size > 1 && row_of(rejection.code).names_job) {
    error.field =
        "jobs[" + std::to_string(rejection.index) + "]" + (error.field.empty() ? "" : "." + error.field);
  }
  return error;
}

}  // namespace gpusched::api
