#include "model/types.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"
#include "base/limits.h"
#include "model/mig.h"

namespace gpusched {

std::string_view to_string(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "pending";
    case JobState::kScheduled:
      return "scheduled";
    case JobState::kRunning:
      return "running";
    case JobState::kCompleted:
      return "completed";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
    case JobState::kPreempted:
      return "preempted";
  }
  UNREACHABLE();
}

std::string_view to_string(PreemptionMode mode) {
  switch (mode) {
    case PreemptionMode::kRequeue:
      return "requeue";
    case PreemptionMode::kCancel:
      return "cancel";
  }
  UNREACHABLE();
}

std::string_view to_string(JobReason reason) {
  switch (reason) {
    case JobReason::kNone:
      return "none";
    case JobReason::kSubmitted:
      return "submitted";
    case JobReason::kBackoff:
      return "backoff";
    case JobReason::kRetry:
      return "retry";
    case JobReason::kPlaced:
      return "placed";
    case JobReason::kStarted:
      return "started";
    case JobReason::kSucceeded:
      return "succeeded";
    case JobReason::kExitCode:
      return "exit_code";
    case JobReason::kSignal:
      return "signal";
    case JobReason::kStartFailed:
      return "start_failed";
    case JobReason::kTimeout:
      return "timeout";
    case JobReason::kLost:
      return "lost";
    case JobReason::kCancelled:
      return "cancelled";
    case JobReason::kHeld:
      return "held";
    case JobReason::kOutOfMemory:
      return "out_of_memory";
    case JobReason::kOverLimit:
      return "over_limit";
    case JobReason::kNodeFault:
      return "node_fault";
    case JobReason::kBegin:
      return "begin";
    case JobReason::kDependency:
      return "dependency";
    case JobReason::kDeadline:
      return "deadline";
    case JobReason::kArray:
      return "array";
    case JobReason::kElements:
      return "elements";
    case JobReason::kPreempting:
      return "preempting";
    case JobReason::kPreempted:
      return "preempted";
    case JobReason::kNotAtOnce:
      return "not_at_once";
    case JobReason::kIdle:
      return "idle";
    case JobReason::kHung:
      return "hung";
  }
  UNREACHABLE();
}

bool RetryPolicy::covers(uint32_t cause, int32_t exit_code) const {
  if (((causes == 0 ? kRetryDefault : causes) & cause) == 0) return false;
  if (cause != kRetryExit || exit_codes.empty()) return true;
  return exit_code >= 0 && exit_code <= 255 &&
         exit_codes.view().find(static_cast<char>(exit_code)) != std::string_view::npos;
}

bool well_formed(const std::vector<IndexRange>& ranges) {
  if (ranges.size() > limits::kArrayRangesMax) return false;
  int64_t below = 0;
  int64_t count = 0;
  for (const IndexRange& range : ranges) {
    if (range.first < below || range.last < range.first || range.last > limits::kArrayIndexMax) return false;
    if (range.step < 1 || range.step > limits::kArrayIndexMax) return false;
    below = range.last + 1;
    count += range.count();
  }
  return count <= limits::kArrayElementsMax;
}

int64_t count_of(const std::vector<IndexRange>& ranges) {
  int64_t count = 0;
  for (const IndexRange& range : ranges) count += range.count();
  return count;
}

std::string_view to_string(DependencyKind kind) {
  switch (kind) {
    case DependencyKind::kAfterOk:
      return "after_ok";
    case DependencyKind::kAfterAny:
      return "after_any";
    case DependencyKind::kAfterStart:
      return "after_start";
  }
  UNREACHABLE();
}

std::string_view to_string(EndCause cause) {
  switch (cause) {
    case EndCause::kNone:
      return "none";
    case EndCause::kExited:
      return "exited";
    case EndCause::kSignaled:
      return "signaled";
    case EndCause::kStartFailed:
      return "start_failed";
    case EndCause::kTimeout:
      return "timeout";
    case EndCause::kStopped:
      return "stopped";
    case EndCause::kShimLost:
      return "shim_lost";
    case EndCause::kNodeLost:
      return "node_lost";
    case EndCause::kContactLost:
      return "contact_lost";
    case EndCause::kOutOfMemory:
      return "out_of_memory";
    case EndCause::kNodeFault:
      return "node_fault";
    case EndCause::kOverLimit:
      return "over_limit";
    case EndCause::kDeviceFault:
      return "device_fault";
    case EndCause::kNotStarted:
      return "not_started";
  }
  UNREACHABLE();
}

std::string_view to_string(FaultClass fault) {
  switch (fault) {
    case FaultClass::kNone:
      return "none";
    case FaultClass::kNote:
      return "note";
    case FaultClass::kDrain:
      return "drain";
    case FaultClass::kReset:
      return "reset";
    case FaultClass::kReplace:
      return "replace";
  }
  UNREACHABLE();
}

std::string_view to_string(WatchdogFinding kind) {
  switch (kind) {
    case WatchdogFinding::kNone:
      return "none";
    case WatchdogFinding::kIdle:
      return "idle";
    case WatchdogFinding::kHung:
      return "hung";
    case WatchdogFinding::kOverShare:
      return "over_share";
    case WatchdogFinding::kEnding:
      return "ending";
  }
  UNREACHABLE();
}

std::string_view to_string(WatchAction action) {
  switch (action) {
    case WatchAction::kWarn:
      return "warn";
    case WatchAction::kRequeue:
      return "requeue";
    case WatchAction::kCancel:
      return "cancel";
  }
  UNREACHABLE();
}

std::string_view to_string(NodeState state) {
  switch (state) {
    case NodeState::kReady:
      return "ready";
    case NodeState::kUnreachable:
      return "unreachable";
    case NodeState::kLost:
      return "lost";
    case NodeState::kDead:
      return "dead";
  }
  UNREACHABLE();
}

std::string_view to_string(DeviceState state) {
  switch (state) {
    case DeviceState::kFree:
      return "free";
    case DeviceState::kHeld:
      return "held";
    case DeviceState::kDraining:
      return "draining";
    case DeviceState::kQuarantined:
      return "quarantined";
    case DeviceState::kShared:
      return "shared";
  }
  UNREACHABLE();
}

std::string_view to_string(DeviceCondition condition) {
  switch (condition) {
    case DeviceCondition::kOk:
      return "ok";
    case DeviceCondition::kUnhealthy:
      return "unhealthy";
    case DeviceCondition::kMissing:
      return "missing";
  }
  UNREACHABLE();
}

std::string_view to_string(Resource resource) {
  switch (resource) {
    case Resource::kNone:
      return "none";
    case Resource::kGpus:
      return "GPUs";
    case Resource::kGpuMemory:
      return "GPU memory MB";
    case Resource::kCpu:
      return "CPU cores";
    case Resource::kMemory:
      return "memory MB";
    case Resource::kJobs:
      return "running jobs";
  }
  UNREACHABLE();
}

int64_t exact_of(const Amount& amount, Resource resource) {
  return resource == Resource::kGpus ? amount.gpu_thousandths() : amount_of(amount, resource);
}

Amount negated(const Amount& amount) {
  return {.gpus = -amount.gpus,
          .gpu_memory_mb = -amount.gpu_memory_mb,
          .cpu_milli = -amount.cpu_milli,
          .memory_mb = -amount.memory_mb,
          .jobs = -amount.jobs,
          .gpu_milli = -amount.gpu_milli};
}

std::string_view to_string(WorkClass work) {
  switch (work) {
    case WorkClass::kUnset:
      return "";
    case WorkClass::kOnline:
      return "online";
    case WorkClass::kBatch:
      return "batch";
  }
  UNREACHABLE();
}

void Amount::subtract(const Amount& other) {
  gpus -= other.gpus;
  gpu_memory_mb -= other.gpu_memory_mb;
  cpu_milli -= other.cpu_milli;
  memory_mb -= other.memory_mb;
  jobs -= other.jobs;
  gpu_milli -= other.gpu_milli;
  CHECK(gpus >= 0);
  CHECK(gpu_memory_mb >= 0);
  CHECK(cpu_milli >= 0);
  CHECK(memory_mb >= 0);
  CHECK(jobs >= 0);
  CHECK(gpu_milli >= 0);
}

std::vector<Part> as_requested(std::vector<Part> parts) {
  for (Part& part : parts) {
    if (part.place.empty()) continue;
    part.place.front().avoided.clear();
    if (part.place.front() == PlaceRequest{}) part.place.clear();
  }
  return parts;
}

bool Part::has_sound_share() const {
  if (!is_share()) return gpu_milli == 0 && gpu_share_mb == 0 && !is_slice();
  if (gpu_count != 1 || gpu_share_mb < 0 || gpu_share_mb > limits::kMegabytesMax) return false;
  // A slice's memory is in its name.
  if (is_slice()) {
    return gpu_milli <= kMilliPerGpu && gpu_memory_mb == 0 && mig_profile.size() <= limits::kMigProfileMax &&
           gpu_share_mb == mig::named_mb_of(mig_profile);
  }
  return gpu_milli < kMilliPerGpu;
}

int64_t gpu_ms_of(const Amount& held, Duration span) {
  return held.gpus * span.ms() + held.gpu_milli * span.ms() / kMilliPerGpu;
}

Amount total_of(const std::vector<Part>& parts) { return total_of(parts, 0); }

Amount total_of(const std::vector<Part>& parts, int32_t last_members) {
  Amount total{.jobs = 1};
  for (const Part& part : parts) {
    const bool counted = last_members > 0 && &part == &parts.back();
    const int64_t members = counted ? last_members : part.member_count;
    if (part.is_share()) {
      total.gpu_milli += members * part.gpu_milli;
      total.gpu_memory_mb += members * part.gpu_share_mb;
    } else {
      total.gpus += members * part.gpu_count;
      total.gpu_memory_mb += members * part.gpu_count * part.gpu_memory_mb;
    }
    total.cpu_milli += members * part.cpu_milli;
    total.memory_mb += members * part.memory_mb;
  }
  return total;
}

bool is_gang(const std::vector<Part>& parts) {
  return parts.size() > 1 || (parts.size() == 1 && parts.front().members_most() > 1);
}

std::string_view to_string(DomainLevel level) {
  switch (level) {
    case DomainLevel::kAny:
      return "any";
    case DomainLevel::kNode:
      return "node";
    case DomainLevel::kRack:
      return "rack";
    case DomainLevel::kBlock:
      return "block";
    case DomainLevel::kZone:
      return "zone";
  }
  UNREACHABLE();
}

std::string_view SchedulingPolicy::domain_label(DomainLevel level) const {
  static constexpr std::string_view kDomainLabels[] = {"topology.rack", "topology.block", "topology.zone"};
  CHECK(level >= DomainLevel::kRack);
  const auto index = static_cast<std::size_t>(level) - static_cast<std::size_t>(DomainLevel::kRack);
  return index < domain_labels.size() && !domain_labels[index].empty()
             ? std::string_view(domain_labels[index])
             : kDomainLabels[index];
}

int64_t Limits::get(Resource resource) const {
  switch (resource) {
    case Resource::kNone:
      return kUnlimited;
    case Resource::kGpus:
      return resources.gpus.value_or(kUnlimited);
    case Resource::kGpuMemory:
      return resources.gpu_memory_mb.value_or(kUnlimited);
    case Resource::kCpu:
      return resources.cpu_milli.value_or(kUnlimited);
    case Resource::kMemory:
      return resources.memory_mb.value_or(kUnlimited);
    case Resource::kJobs:
      return resources.jobs.value_or(kUnlimited);
  }
  UNREACHABLE();
}

void Limits::set(Resource resource, int64_t limit) {
  CHECK(limit >= 0);
  const std::optional<int64_t> stored = limit == kUnlimited ? std::nullopt : std::optional<int64_t>(limit);
  switch (resource) {
    case Resource::kNone:
      UNREACHABLE();
    case Resource::kGpus:
      resources.gpus = stored;
      return;
    case Resource::kGpuMemory:
      resources.gpu_memory_mb = stored;
      return;
    case Resource::kCpu:
      resources.cpu_milli = stored;
      return;
    case Resource::kMemory:
      resources.memory_mb = stored;
      return;
    case Resource::kJobs:
      resources.jobs = stored;
      return;
  }
  UNREACHABLE();
}

}  // namespace gpusched
