#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/blob.h"
#include "base/check.h"
#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/admission.h"
#include "model/place_request.h"
#include "model/usage/usage.h"

namespace gpusched {

/// A job's life: pending -> scheduled -> running -> completed | failed | cancelled; back to pending for a
/// retry. preempted: told to end for another job, and not over yet; then pending.
enum class JobState : uint8_t {
  kPending = 1,
  kScheduled,
  kRunning,
  kCompleted,
  kFailed,
  kCancelled,
  kPreempted
};
inline constexpr std::size_t kJobStateCount = 8;  ///< Size of arrays indexed by state.

std::string_view to_string(JobState state);
constexpr bool is_final(JobState state) {
  return state == JobState::kCompleted || state == JobState::kFailed || state == JobState::kCancelled;
}

/// Why a job is in its state. One word, stable: clients see it.
enum class JobReason : uint8_t {
  kNone = 0,
  kSubmitted,    ///< pending: waits for its turn; what for exactly is the planner's to say.
  kBackoff,      ///< pending: waits before a retry.
  kRetry,        ///< pending: its back-off is over.
  kPlaced,       ///< scheduled
  kStarted,      ///< running
  kSucceeded,    ///< completed
  kExitCode,     ///< failed: a non-zero exit code.
  kSignal,       ///< failed: ended by a signal that we did not send.
  kStartFailed,  ///< failed: never ran.
  kTimeout,      ///< failed: over its maximum runtime.
  kLost,         ///< failed: node, shim or contact lost.
  kCancelled,    ///< cancelled: somebody asked.
  kHeld,         ///< pending: until somebody releases it.
  kOutOfMemory,  ///< failed: passed its memory and was ended.
  kOverLimit,    ///< failed: passed another limit and was ended.
  kNodeFault,    ///< failed: nodes could not run it, and it may not be retried.
  kBegin,        ///< pending: until the time that it asked to begin at.
  kDependency,   ///< pending: until other jobs did what it waits for; cancelled: they no longer can.
  kDeadline,     ///< failed: its deadline passed before it ran.
  kArray,        ///< pending: an array, whose elements are what waits and runs.
  kElements,     ///< failed, cancelled: an array, some of whose elements ended so.
  kPreempting,   ///< pending: others are being ended for it, and what they hold is promised to it.
  kPreempted,    ///< preempted, and pending until its back-off is over; or cancelled: ended for another job.
  kNotAtOnce,    ///< failed: it was interactive, and could not start at once.
  kIdle,         ///< cancelled: left its GPUs unused for longer than the watchdog lets it.
  kHung,         ///< cancelled: kept its GPUs busy without a sign of progress for longer than that.
};
inline constexpr JobReason kJobReasonLast = JobReason::kHung;
std::string_view to_string(JobReason reason);

/// Cause of the end of an attempt's member. Numbers as in `Outcome.Cause` of the protocol.
enum class EndCause : uint8_t {
  kNone = 0,
  kExited,
  kSignaled,
  kStartFailed,
  kTimeout,
  kStopped,
  kShimLost,
  kNodeLost,
  kContactLost,
  kOutOfMemory,  ///< Ended for passing its memory.
  kNodeFault,    ///< The node could not run any job: no fault of the job's.
  kOverLimit,    ///< Ended for passing another limit.
  kDeviceFault,  ///< Failed because of a faulty device, not because of the job.
  kNotStarted,   ///< An external node would not start it, and says why: tried elsewhere, free of charge.
};
inline constexpr EndCause kEndCauseLast = EndCause::kNotStarted;
/// A fault of what it ran on: tried again elsewhere, free of charge.
constexpr bool is_of_node(EndCause cause) {
  return cause == EndCause::kNodeFault || cause == EndCause::kDeviceFault;
}
/// The attempt says nothing of its job, and nobody asked for its end: tried again free of charge.
constexpr bool is_no_fault_of_job(EndCause cause) {
  return is_of_node(cause) || cause == EndCause::kNotStarted;
}
std::string_view to_string(EndCause cause);

struct Outcome {
  EndCause cause = EndCause::kNone;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string detail;
  bool keep_detail = false;  ///< The job keeps it. In old journals none did.
  Usage usage = {};

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "cause", self.cause);
    visit(2, "exit_code", self.exit_code);
    visit(3, "signal", self.signal);
    visit(4, "detail", self.detail);
    visit(5, "keep_detail", self.keep_detail);
    visit(6, "peak_memory_bytes", self.usage.peak_memory_bytes);
    visit(7, "peak_of_process", self.usage.peak_of_process);
    visit(8, "cpu_time", self.usage.cpu_time);
    visit(9, "gpu_busy_ms", self.usage.gpu_busy_ms);
    visit(10, "gpu_watched_ms", self.usage.gpu_watched_ms);
    visit(11, "peak_gpu_memory_mb", self.usage.peak_gpu_memory_mb);
  }
};

/// Why an attempt is being ended by us.
enum class StopReason : uint8_t {
  kNone = 0,
  kCancel,
  kTimeout,
  kAbandoned,
  kRequeue,
  kPreempt,
  kGang,  ///< A member of it ended badly, and none goes on without the others.
  kIdle,  ///< The watchdog's policy ended a job that leaves its GPUs unused.
  kHung,  ///< The watchdog's policy ended a job that shows no progress.
};
inline constexpr StopReason kStopReasonLast = StopReason::kHung;

/// Effect of a preemption on the preempted job.
enum class PreemptionMode : uint8_t {
  kRequeue = 0,  ///< The job is pending again.
  kCancel,       ///< The job is cancelled.
};
inline constexpr PreemptionMode kPreemptionModeLast = PreemptionMode::kCancel;
std::string_view to_string(PreemptionMode mode);

enum class NodeState : uint8_t {
  kReady = 1,
  kUnreachable,  ///< Silent past its lease; its attempts go on.
  kLost,         ///< Silent for long; still holds what it held, unless a job allows overlap.
  kDead,         ///< An operator confirmed that nothing runs there. Leaves it by registering.
};
std::string_view to_string(NodeState state);

/// Whether a node that reports may take new work. Its attempts go on in any case.
enum class Availability : uint8_t {
  kInService = 0,
  kValidating,  ///< The node's own checks have not passed yet, or fail again.
  kDraining,    ///< Somebody took it out of service.
};

/// Capabilities of a node beyond running processes that placement asks for; one bit each.
inline constexpr uint32_t kFeatureContainer = 1u << 0;  ///< The feature "container".
/// The feature "external": the node starts nothing itself. It takes exactly the parts that ask for it.
inline constexpr uint32_t kFeatureExternal = 1u << 1;
inline constexpr uint32_t kFeaturesKnown = kFeatureContainer | kFeatureExternal;

/// A name with a value.
struct Label {
  std::string name;
  std::string value;

  friend bool operator==(const Label&, const Label&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.name);
    visit(2, "value", self.value);
  }
};

enum class DeviceState : uint8_t {
  kFree = 1,
  kHeld,
  kDraining,     ///< The attempt ended; the node has not yet seen the device empty.
  kQuarantined,  ///< Did not become empty in time: out of the pool, its node is not.
  kShared,       ///< Attempts hold shares of the device; others may take further ones.
};
std::string_view to_string(DeviceState state);

/// Condition reported by the driver. Numbers as in the protocol.
enum class DeviceCondition : uint8_t { kOk = 1, kUnhealthy, kMissing };
std::string_view to_string(DeviceCondition condition);

/// Meanings of a device's fault, from mild to grave. Found by its node, by the table of faults
/// (docs/reference/gpu-health.md).
enum class FaultClass : uint8_t {
  kNone = 0,
  kNote,     ///< Shown and counted, no more.
  kDrain,    ///< No new work until an operator releases it; what runs goes on. So for those that follow.
  kReset,    ///< Or until it was reset.
  kReplace,  ///< The device is broken.
};
inline constexpr FaultClass kFaultClassLast = FaultClass::kReplace;
std::string_view to_string(FaultClass fault);
/// Reason for a warning about a running job.
enum class WatchdogFinding : uint8_t {
  kNone = 0,
  kIdle,       ///< The GPUs are unused.
  kHung,       ///< The GPUs are busy without any sign of progress.
  kOverShare,  ///< The job uses more GPU memory than its share.
  kEnding,     ///< The job is a lease, and its time is about to end.
};
inline constexpr WatchdogFinding kWatchKindLast = WatchdogFinding::kEnding;
std::string_view to_string(WatchdogFinding kind);
/// Action taken besides the warning.
enum class WatchAction : uint8_t {
  kWarn = 0,
  kRequeue,  ///< The attempt is stopped, and the job is pending again.
  kCancel,   ///< The job is cancelled.
};
inline constexpr WatchAction kWatchActionLast = WatchAction::kCancel;
std::string_view to_string(WatchAction action);

/// Kind of work of a job, for the pools that a cluster may be divided into.
enum class WorkClass : uint8_t {
  kUnset = 0,  ///< Batch, where pools are configured.
  kOnline,     ///< Somebody waits for it.
  kBatch,
};
inline constexpr WorkClass kWorkClassLast = WorkClass::kBatch;
std::string_view to_string(WorkClass work);

/// Shares of devices are counted in thousandths.
inline constexpr int64_t kMilliPerGpu = 1000;
/// Returns the number of whole devices in thousandths of devices, rounded up.
constexpr int64_t milli_up(int64_t milli) {
  return milli > 0 ? (milli + kMilliPerGpu - 1) / kMilliPerGpu : milli / kMilliPerGpu;
}

/// A level of the tree of places, smallest first. The levels above a node are named by nodes' labels.
enum class DomainLevel : uint8_t {
  kAny = 0,  ///< The smallest that fits, up to the whole cluster.
  kNode,
  kRack,
  kBlock,
  kZone,
};
inline constexpr DomainLevel kDomainLevelLast = DomainLevel::kZone;
std::string_view to_string(DomainLevel level);

/// Resources that one member of a job's part needs on its node.
struct Part {
  int32_t member_count = 1;   ///< Number of members; the minimum of an elastic part.
  int32_t gpu_count = 0;      ///< Per member.
  int64_t gpu_memory_mb = 0;  ///< Memory of each device.
  int32_t cpu_milli = 0;      ///< Thousandths of a core.
  int64_t memory_mb = 0;
  std::string gpu_model;  ///< Empty: any, but one for all of a member's devices.
  uint32_t features = 0;  ///< NodeFeature bits that the node must have.
  WorkClass work = WorkClass::kUnset;
  uint64_t booking = 0;      ///< Runs on this booking's nodes while it is active; 0: where none is.
  int32_t gpu_milli = 0;     ///< A share of one device: so many thousandths of it; 0: whole devices.
  int64_t gpu_share_mb = 0;  ///< Memory of a share; 0: in proportion to `gpu_milli`.
  int32_t member_max = 0;    ///< Maximum of an elastic part, as many as fit at its start; 0: not elastic.
  DomainLevel domain = DomainLevel::kAny;  ///< All members of the job in one of these. One for all parts.
  bool domain_required = false;            ///< The job waits until they fit into one domain.
  bool one_member_per_node = false;        ///< No other member of the job on a member's node.
  bool may_span_nodes = false;  ///< Requests only: the devices may be on several nodes if one has too few.

  bool is_elastic() const { return member_max > member_count; }
  int32_t members_most() const { return is_elastic() ? member_max : member_count; }
  std::vector<PlaceRequest> place;  ///< At most one element: most parts may run anywhere.

  /// Shares only: MIG profile of a slice, "1g.10gb", which counts as `gpu_milli`. Empty: none.
  std::string mig_profile = {};

  const PlaceRequest* wishes() const { return place.empty() ? nullptr : &place.front(); }
  bool is_exclusive() const { return !place.empty() && place.front().exclusive; }
  /// Not any devices will do that are enough: which, or how they lie, is asked for.
  bool is_arranged() const;
  bool is_share() const { return gpu_milli > 0; }
  bool is_slice() const { return !mig_profile.empty(); }
  /// A share is of one device, and less than all of it; a slice may be all of it.
  bool names_gpu_memory() const { return (is_share() ? gpu_share_mb : gpu_memory_mb) > 0; }
  bool has_sound_share() const;
  /// The memory that a share, but no slice, takes of a device of `device_mb`. For any part: DeviceClass.
  int64_t share_mb_of(int64_t device_mb) const {
    return gpu_share_mb > 0 ? gpu_share_mb : device_mb * gpu_milli / kMilliPerGpu;
  }
  friend bool operator==(const Part&, const Part&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "member_count", self.member_count);
    visit(2, "gpu_count", self.gpu_count);
    visit(3, "gpu_memory_mb", self.gpu_memory_mb);
    visit(4, "cpu_milli", self.cpu_milli);
    visit(5, "memory_mb", self.memory_mb);
    visit(6, "gpu_model", self.gpu_model);
    visit(7, "features", self.features);
    visit(8, "booking", self.booking);
    visit(60, "work", self.work);
    visit(61, "gpu_milli", self.gpu_milli);
    visit(62, "gpu_share_mb", self.gpu_share_mb);
    visit(70, "member_max", self.member_max);
    visit(71, "domain", self.domain);
    visit(72, "domain_required", self.domain_required);
    visit(73, "own_nodes", self.one_member_per_node);
    visit(74, "over_nodes", self.may_span_nodes);
    visit(80, "place", self.place);
    visit(100, "mig_profile", self.mig_profile);
  }
};

/// Returns the parts without what the engine noted in them, as a command may carry them.
std::vector<Part> as_requested(std::vector<Part> parts);

/// A job of these parts is placed on several nodes, or several times on one.
bool is_gang(const std::vector<Part>& parts);

/// Returns the kind of work of a job with these parts.
inline WorkClass work_of(const std::vector<Part>& parts) {
  return parts.empty() ? WorkClass::kUnset : parts.front().work;
}

/// An amount of everything that quotas count.
struct Amount {
  int64_t gpus = 0;  ///< Whole ones.
  int64_t gpu_memory_mb = 0;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  int64_t jobs = 0;
  int64_t gpu_milli = 0;  ///< Beside `gpus`: thousandths of GPUs, of shares.

  /// Whole GPUs and shares together, in thousandths.
  int64_t gpu_thousandths() const { return gpus * kMilliPerGpu + gpu_milli; }
  bool has_gpus() const { return gpus != 0 || gpu_milli != 0; }
  friend bool operator==(const Amount&, const Amount&) = default;
  void add(const Amount& other) {
    gpus += other.gpus;
    gpu_memory_mb += other.gpu_memory_mb;
    cpu_milli += other.cpu_milli;
    memory_mb += other.memory_mb;
    jobs += other.jobs;
    gpu_milli += other.gpu_milli;
  }
  void subtract(const Amount& other);
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "gpus", self.gpus);
    visit(2, "gpu_memory_mb", self.gpu_memory_mb);
    visit(3, "cpu_milli", self.cpu_milli);
    visit(4, "memory_mb", self.memory_mb);
    visit(5, "jobs", self.jobs);
    visit(6, "gpu_milli", self.gpu_milli);
  }
};
/// The amount, of which a resource may be negative, as a change of another one.
Amount negated(const Amount& amount);

/// Returns the GPU-milliseconds of holding `amount` for `span`, rounded down.
int64_t gpu_ms_of(const Amount& held, Duration span);

/// Returns the total of all members of `parts`, as one running job; the minimum of an elastic part.
Amount total_of(const std::vector<Part>& parts);
/// The same with `last_members` members of the last part; 0: as many as it says.
Amount total_of(const std::vector<Part>& parts, int32_t last_members);

/// A resource of an Amount, for naming the one that is short.
enum class Resource : uint8_t { kNone = 0, kGpus, kGpuMemory, kCpu, kMemory, kJobs };
std::string_view to_string(Resource resource);
/// Returns GPUs as whole ones and shares together, rounded up, to be compared with limits.
inline int64_t amount_of(const Amount& amount, Resource resource) {
  switch (resource) {
    case Resource::kNone:
      return 0;
    case Resource::kGpus:
      return amount.gpus + milli_up(amount.gpu_milli);  // A limit may be too large for thousandths.
    case Resource::kGpuMemory:
      return amount.gpu_memory_mb;
    case Resource::kCpu:
      return amount.cpu_milli;
    case Resource::kMemory:
      return amount.memory_mb;
    case Resource::kJobs:
      return amount.jobs;
  }
  UNREACHABLE();
}
/// Returns GPUs exactly, in thousandths; any other resource as `amount_of` does.
int64_t exact_of(const Amount& amount, Resource resource);

/// Limits of what a tenant's jobs may hold at once; an absent one: no limit.
struct ResourceLimits {
  std::optional<int64_t> gpus;
  std::optional<int64_t> gpu_memory_mb;
  std::optional<int64_t> cpu_milli;
  std::optional<int64_t> memory_mb;
  std::optional<int64_t> jobs;

  friend bool operator==(const ResourceLimits&, const ResourceLimits&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "gpus", self.gpus);
    visit(2, "gpu_memory_mb", self.gpu_memory_mb);
    visit(3, "cpu_milli", self.cpu_milli);
    visit(4, "memory_mb", self.memory_mb);
    visit(5, "jobs", self.jobs);
  }
};

/// A tenant's limits; an absent one: no limit.
struct Limits {
  ResourceLimits resources;
  std::optional<int64_t> waiting_max;  ///< Jobs that may wait, its children's included; more are refused.
  std::optional<int64_t> soft_waiting_max;  ///< While more wait, each user's jobs are let in one by one.

  static constexpr int64_t kUnlimited = INT64_MAX;
  /// Returns the limit of `resource`, which is not kNone; kUnlimited when there is none.
  int64_t get(Resource resource) const;
  int64_t waiting() const { return waiting_max.value_or(kUnlimited); }
  int64_t soft_waiting() const { return soft_waiting_max.value_or(kUnlimited); }
  void set(Resource resource, int64_t limit);
  friend bool operator==(const Limits&, const Limits&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "limit", self.resources);
    visit(2, "waiting_max", self.waiting_max);
    visit(3, "soft_waiting_max", self.soft_waiting_max);
  }
};

/// Causes, from the job itself, for which it is retried; one bit each.
inline constexpr uint32_t kRetryExit = 1u << 0;         ///< An exit code.
inline constexpr uint32_t kRetrySignal = 1u << 1;       ///< A signal that we did not send.
inline constexpr uint32_t kRetryOutOfMemory = 1u << 2;  ///< Passed its memory.
inline constexpr uint32_t kRetryOverLimit = 1u << 3;    ///< Passed another limit.
inline constexpr uint32_t kRetryTimeout = 1u << 4;      ///< Over its maximum runtime.
inline constexpr uint32_t kRetryKnown = (1u << 5) - 1;
/// Default: all causes but the time-out.
inline constexpr uint32_t kRetryDefault = kRetryExit | kRetrySignal | kRetryOutOfMemory | kRetryOverLimit;

/// Number of retries of a job, by cause.
struct RetryPolicy {
  int32_t exit_code_retries = 0;  ///< Retries for the causes in `causes`.
  int32_t system_retries = 0;     ///< 0: the default; -1: never.
  bool overlap_allowed = false;
  /// Gangs only: keep running after a node loss while enough members remain.
  bool tolerates_node_loss = false;
  uint32_t causes = 0;  ///< Bits kRetryExit and so on; 0: kRetryDefault.
  Duration kill_after_lost_contact;
  Blob exit_codes;  ///< With kRetryExit: exit codes to retry, one byte each, ascending; empty: all.

  /// Whether it may be tried again at all for what the job did itself, with this exit code if it exited.
  bool covers(uint32_t cause, int32_t exit_code) const;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "exit_code_retries", self.exit_code_retries);
    visit(2, "system_retries", self.system_retries);
    visit(3, "overlap_allowed", self.overlap_allowed);
    visit(4, "kill_after_lost_contact", self.kill_after_lost_contact);
    visit(5, "causes", self.causes);
    visit(6, "exit_codes", self.exit_codes);
    visit(7, "bears_loss", self.tolerates_node_loss);
  }
};

/// Condition on another job, the parent.
enum class DependencyKind : uint8_t {
  kAfterOk = 1,  ///< Until the parent completed.
  kAfterAny,     ///< Until the parent ended, however.
  kAfterStart,   ///< Until the parent runs.
};
inline constexpr DependencyKind kDependencyKindLast = DependencyKind::kAfterStart;
std::string_view to_string(DependencyKind kind);

/// Indexes of an array's elements: first, first + step, ... up to last.
struct IndexRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 1;

  int64_t count() const { return (last - first) / step + 1; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "first", self.first);
    visit(2, "last", self.last);
    visit(3, "step", self.step);
  }
};
/// Ranges that ascend, do not meet, and hold at most limits::kArrayElementsMax indexes together.
bool well_formed(const std::vector<IndexRange>& ranges);
int64_t count_of(const std::vector<IndexRange>& ranges);

/// Effect on a job when a parent can no longer meet its condition.
enum class OnParentFailure : uint8_t { kCancel = 0, kWait };

/// Feature level of this version: what it may write into the state; journaled with the configuration: older
/// journals replay as they did. 1: jobs remember where their earlier attempts ran. 2: an operator's kOk has a
/// quarantined device's node look at it again; jobs keep what their image's name meant at first; tenants' use
/// is counted, older use less; jobs know that they started once. 3: jobs remember how much service they had.
/// 4: an array's future element is named once in a job's dependencies, as others are. 5: jobs have several
/// parts; nodes remember how attempts ended on them, and nodes on which alone jobs die are found. 6: a node's
/// name, data folder and devices belong to one machine until it is dead for certain; a cluster has a name; an
/// array's element that is touched before its turn waits for its turn; a promise to a job that now asks for
/// something else ends; reservations begin within a year; time that nobody watched does not count against
/// shares that drain; GPU time of shares keeps what is less than a millisecond. 7: a job's move is kept as a
/// record; jobs keep their timelines; a job whose starts fail is held; starts can be paused. 8: jobs keep who
/// submitted them. 9: jobs have owners, whose request keys are theirs; reservations end with their tenant.
/// 10: a deadline that was met is over; what a moved job held stays counted; nodes have identities. 11:
/// commands say who proposed them, jobs what grace they ask for; tenants' names have keys. 12: external nodes
/// take external jobs alone; a job avoids nodes that would not start it.
inline constexpr int64_t kFeatureLevel = 12;

/// Order and placement of pending jobs. Journaled, so that every leader plans by the same; what it chose
/// is in the plans.
struct SchedulingPolicy {
  std::string queue_order;              ///< Name of the order of tenants; empty: priority_aging.
  std::optional<int64_t> reservations;  ///< Blocked jobs whose start is kept free; absent: one job.
  std::string run_times;                ///< "limits" or, also when empty, "learned".
  std::string job_order;                ///< Within a tenant, by name; empty: priority_aging.
  /// GPU-seconds, rising, at which a job falls to the next level of `least_attained`.
  std::vector<int64_t> attained_levels;
  Duration
      overtaking;  ///< A job that waited for so long is not overtaken by `job_order` any more; zero: it is.
  bool preempt_by_attained = false;  ///< With `least_attained`: at equal priority, by level.
  /// The names of the labels that say a node's rack, its block and its zone; an empty one: topology.rack and
  /// so on.
  std::vector<std::string> domain_labels;
  std::string placement;  ///< Name of the placement policy; empty: best_fit.

  /// The label that names domains of this level, from the rack up.
  std::string_view domain_label(DomainLevel level) const;
  friend bool operator==(const SchedulingPolicy&, const SchedulingPolicy&) = default;
};

/// Division of the cluster's GPUs into a pool for online work and one for batch work.
struct PoolShares {
  int64_t online_milli = 0;  ///< Thousandths of the GPUs in service. Both 0: there are no pools.
  int64_t batch_milli = 0;   ///< Together at most 1000.
  bool lend = false;         ///< Lets each pool use idle GPUs of the other until they are reclaimed.
  bool set = false;  ///< The shares were set by a command of their own: whoever configures leaves them.

  bool same_shares(const PoolShares& other) const {
    return online_milli == other.online_milli && batch_milli == other.batch_milli;
  }
  bool on() const { return online_milli + batch_milli > 0; }
  bool lends() const { return on() && lend; }
  /// Returns how many of `gpus` belong to that pool.
  int64_t gpus_of(bool online, int64_t gpus) const {
    return gpus * (online ? online_milli : batch_milli) / 1000;
  }
  friend bool operator==(const PoolShares&, const PoolShares&) = default;
};

/// An operator's word that nothing is started, until it is taken back. Running jobs go on.
struct Pause {
  Time since;  ///< Not valid: there is none.
  std::string by;
  std::string why;  ///< May be empty.

  bool on() const { return since.valid(); }
  friend bool operator==(const Pause&, const Pause&) = default;
};

/// Settings that `decide` depends on besides the commands; journaled when they change.
struct EngineConfig {
  int64_t aging_per_hour = 10;  ///< Priority points that a waiting job gains in an hour.
  int64_t queue_size_max = 1'000'000;
  int64_t finished_jobs_max = 1'000'000;
  Duration finished_jobs_kept = hours(24 * 7);
  Duration drain_limit = seconds(60);
  Duration lost_after = minutes(5);  ///< Time from unreachable to lost.
  int64_t auto_drain_percent = 0;    ///< Maximum percentage of nodes drained automatically; 0: none.
  int64_t feature_level = 0;         ///< See kFeatureLevel.
  Duration use_half_life;            ///< Half-life of a tenant's usage; 0: kUseHalfLife.
  SchedulingPolicy policy;
  PoolShares pools;
  AdmissionPolicy admission;
  // Maximum GPUs of an interactive job, which starts at once or not at all. Zero: nobody may have one.
  int64_t interactive_gpus_max = 0;
  Duration interactive_runtime_max;  ///< Maximum time limit of an interactive job, which must have one.
  Duration interactive_wait;         ///< Maximum wait of an interactive job.

  /// Name of the cluster, drawn when a journal begins or reaches feature level 6, and the same ever after.
  std::string cluster;
  Time cluster_since;  ///< Attempts placed earlier belong to another journal; not valid: unknown.
  Pause pause;         ///< Set by a command of its own; whoever configures leaves it as it is.

  static constexpr Duration kUseHalfLife = hours(24 * 7);
  Duration half_life() const { return use_half_life.ns > 0 ? use_half_life : kUseHalfLife; }

  friend bool operator==(const EngineConfig&, const EngineConfig&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "aging_per_hour", self.aging_per_hour);
    visit(2, "queue_size_max", self.queue_size_max);
    visit(3, "finished_jobs_max", self.finished_jobs_max);
    visit(4, "finished_jobs_kept", self.finished_jobs_kept);
    visit(5, "drain_limit", self.drain_limit);
    visit(6, "lost_after", self.lost_after);
    visit(7, "auto_drain_percent", self.auto_drain_percent);
    visit(8, "feature_level", self.feature_level);
    visit(9, "use_half_life", self.use_half_life);
    visit(10, "queue_order", self.policy.queue_order);
    visit(11, "reservations", self.policy.reservations);
    visit(12, "run_times", self.policy.run_times);
    visit(30, "pool_online_milli", self.pools.online_milli);
    visit(31, "pool_batch_milli", self.pools.batch_milli);
    visit(32, "pools_lend", self.pools.lend);
    visit(33, "pools_set", self.pools.set);
    visit(40, "job_order", self.policy.job_order);
    visit(41, "attained_levels", self.policy.attained_levels);
    visit(42, "overtaking", self.policy.overtaking);
    visit(43, "preempt_by_attained", self.policy.preempt_by_attained);
    visit(44, "interactive_gpus_max", self.interactive_gpus_max);
    visit(45, "interactive_runtime_max", self.interactive_runtime_max);
    visit(46, "interactive_wait", self.interactive_wait);
    visit(50, "admission_rate_milli", self.admission.rate_milli);
    visit(51, "admission_burst", self.admission.burst);
    visit(52, "admission_daily", self.admission.daily);
    visit(53, "admission_soft_queue", self.admission.soft_queue);
    visit(54, "admission_throttled_milli", self.admission.throttled_milli);
    visit(55, "admission_costs", self.admission.costs);
    visit(70, "domain_labels", self.policy.domain_labels);
    visit(80, "cluster", self.cluster);
    visit(81, "cluster_since", self.cluster_since);
    visit(90, "placement", self.policy.placement);
    visit(91, "paused_since", self.pause.since);
    visit(92, "paused_by", self.pause.by);
    visit(93, "pause_reason", self.pause.why);
  }
};

}  // namespace gpusched
