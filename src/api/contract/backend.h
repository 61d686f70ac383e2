#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/contract/errors.h"
#include "base/blob.h"
#include "base/ids.h"
#include "base/time.h"
#include "engine/messages/commands.h"
#include "model/job.h"
#include "model/types.h"

/// What every door needs from the scheduler, in words that no wire format knows. `HostBackend` gives it over
/// the host, its observer and its node hub; tests of a door give a recording one.
namespace gpusched::api {

/// Called once with the answer. Writes: on the host's thread, after the command is durable; answers that
/// became durable together are followed by one call of the group hook (see Backend::on_group_done). Reads: on
/// the observer's thread. It must not block; it may be called before the asking call returns.
template <typename T>
using Done = std::function<void(Answer<T>)>;

/// One part of a job: so many members, and what each needs on its node.
struct JobPart {
  int32_t members = 1;
  int32_t members_max = 0;  ///< As many as fit at the start, up to this; 0: `members` of them.
  int32_t gpu_count = 0;
  int32_t gpu_milli = 0;
  int64_t gpu_memory_mb = 0;  ///< Of all of a member's GPUs together.
  std::string gpu_model;
  int64_t cpu_milli = 1000;
  int64_t memory_mb = 0;
};

/// A job as a door understood it. Limits of base/limits.h are checked by the door.
struct JobRequest {
  std::string spec;  ///< A serialized gpusched.v1.JobSpec with sorted maps: equal jobs have equal bytes.
  std::string name;  ///< As in `spec`.
  int32_t gpu_count = 0;
  int32_t gpu_milli = 0;      ///< A share of one GPU, in thousandths; 0: whole ones.
  std::string mig_profile;    ///< The share is a slice of this profile; its milli and memory are those of it.
  int64_t gpu_memory_mb = 0;  ///< Of all GPUs together; of a share: its own.
  std::string gpu_model;
  int64_t cpu_milli = 1000;
  int64_t memory_mb = 0;
  std::optional<int32_t> priority;  ///< Not given: the configured default.
  Duration max_runtime = {};        ///< Zero: no limit.
  int32_t exit_code_retries = 0;
  int32_t system_retries = 0;  ///< 0: the default; -1: never.
  bool overlap_allowed = false;
  bool tolerates_node_loss = false;  ///< Of a gang: it goes on without members that nodes took.
  Duration kill_after_lost_contact = {};
  bool require_feasible = false;
  bool wants_container = false;  ///< An image is given.
  bool held = false;             ///< Waits until it is released.
  uint32_t retry_causes = 0;     ///< See RetryPolicy::causes.
  std::string retry_exit_codes;  ///< See RetryPolicy::exit_codes.
  std::vector<JobFlow> flow;     ///< None or one; see the engine's.
  PreemptionMode preemption_mode = PreemptionMode::kRequeue;
  bool interactive = false;  ///< Starts at once or not at all.
  WorkClass work = WorkClass::kUnset;
  std::string reservation;          ///< The name of one; empty: none.
  std::vector<PlaceRequest> place;  ///< None or one: where it may run. With models, `gpu_model` is empty.
  int64_t gpu_memory_each_mb = 0;   ///< Of each GPU at least.
  Duration preempt_grace =
      {};  ///< As in `spec`, as are the next: what it asks for when it is ended for others.
  std::string preempt_webhook;
  /// Given: it runs on so many nodes, and what stands above is needed on each. 0: on one.
  int32_t nodes = 0;
  int32_t nodes_max = 0;             ///< As many as fit at the start, up to this; 0: `nodes` of them.
  std::vector<JobPart> parts;        ///< Given: these, instead of what stands above.
  bool one_member_per_node = false;  ///< Each member of `parts` on a node of its own.
  bool gpus_over_nodes = false;      ///< Where one node has too few GPUs they may be on several.
  DomainLevel domain = DomainLevel::kAny;
  bool domain_required = false;

  bool is_gang() const { return nodes > 1 || nodes_max > 1 || !parts.empty(); }
};

/// Nodes to be kept for a time; the engine's Booking.
struct ReservationRequest {
  std::string name;
  std::string tenant;  ///< Empty: nobody's, for maintenance.
  std::vector<std::string> users;
  std::vector<std::string> nodes;  ///< Names or patterns.
  Time begin_at;
  Duration begin_after = {};
  Duration length = {};
  Duration every = {};
  std::string reason;
};

struct ReservationView {
  std::string id, name;
  std::string tenant;  ///< Its name; empty: nobody's.
  std::vector<std::string> users, nodes;
  Time begin, end;
  Duration every = {};
  std::string reason;
  bool active = false;
};

struct SubmitRequest {
  std::string tenant;  ///< "tenant-<digits>", "default" or a tenant's name; empty: the default one.
  std::vector<JobRequest> jobs;
  std::string request_key;
};

struct Submitted {
  JobId first_job;  ///< The batch's ids follow each other, except behind arrays.
  uint32_t job_count = 0;
  std::vector<uint32_t> numbers;  ///< How many each job took; empty: one each.
  int64_t queue_position = 0;     ///< Of the first job, at that moment; an estimate.
  Duration estimated_wait = {};

  /// The jobs' ids, in the order of the request.
  std::vector<JobId> jobs() const {
    std::vector<JobId> out;
    out.reserve(job_count);
    uint64_t next = first_job.value;
    for (uint32_t i = 0; i < job_count; ++i) {
      out.push_back(JobId{next});
      next += numbers.empty() ? 1 : numbers[i];
    }
    return out;
  }
};

/// Resource limits of a tenant; nothing means no limit.
struct TenantLimits {
  std::optional<int64_t> gpus;
  std::optional<int64_t> gpu_memory_mb;
  std::optional<int64_t> cpu_cores;
  std::optional<int64_t> memory_mb;
  std::optional<int64_t> concurrent_jobs;
  std::optional<int64_t> waiting_jobs;       ///< Of limits alone: one more is refused.
  std::optional<int64_t> soft_waiting_jobs;  ///< While more wait, each user's jobs are let in one by one.
};

/// What a tenant is created or updated with. In an update only what is given changes.
struct TenantRequest {
  std::optional<std::string> name;
  std::optional<std::string> email;
  std::optional<std::string> organization;
  TenantLimits limits;
  std::vector<std::string> unlimited;  ///< Update: names of limits to lift, such as "max_gpus".
  std::optional<int32_t> priority_tier;
  std::optional<int64_t> weight_milli;  ///< Fair-share weight in thousandths.
  std::optional<bool> allow_preemption;
  std::optional<bool> can_preempt_others;
  std::optional<bool> anonymous;  ///< Callers without a credential may use it.
  TenantLimits guarantee;
  std::optional<int64_t> gpu_ms_max;   ///< GPU time in each window.
  std::optional<Duration> gpu_window;  ///< Not given: what it is, or a week.
  std::string parent;
  std::string request_key;
};

/// Changes that are made together or not at all.
struct EditsRequest {
  struct Labels {
    std::string node;
    std::vector<Label> set;
    std::vector<std::string> remove;
  };
  /// Each named: created where nobody has the name, else what is given of it is changed. A parent may be the
  /// name of one before it.
  std::vector<TenantRequest> tenants;
  std::vector<Labels> nodes;  ///< Each node once.
  bool dry_run = false;       ///< Only tell whether all would be accepted.
};

struct EditsView {
  bool dry_run = false;
  int32_t tenants_created = 0;
  int32_t tenants_updated = 0;
  int32_t nodes_labeled = 0;
};

struct TenantView {
  TenantId id;
  std::string name, email, organization;
  TenantId parent;
  TenantLimits limits;
  int32_t priority_tier = 0;
  int64_t weight_milli = 1000;
  bool allow_preemption = false, can_preempt_others = false;
  bool anonymous = false;         ///< Callers without a credential may use it.
  int64_t current_gpu_milli = 0;  ///< Of shares, beside the whole ones.
  int64_t current_gpus = 0, current_gpu_memory_mb = 0, current_cpu_milli = 0, current_memory_mb = 0;
  int64_t running_jobs = 0, waiting_jobs = 0;
  int64_t gpu_milliseconds = 0;  ///< Used so far, ended and running attempts.
  int64_t total_jobs = 0, successful_jobs = 0, failed_jobs = 0;
  int64_t guaranteed_gpus = 0, guaranteed_gpu_memory_mb = 0, guaranteed_cpu_milli = 0;
  int64_t guaranteed_memory_mb = 0, guaranteed_jobs = 0;
  Duration gpu_window;  ///< Of the GPU time that it may have; zero: no limit.
  int64_t gpu_ms_max = 0, gpu_ms_used = 0;
  Time gpu_window_ends;
  int64_t reclaims = 0;  ///< Its jobs that started on what others had to give back; and their waits for it.
  int64_t reclaim_ms = 0, reclaim_ms_max = 0;
  Time created_at, updated_at;
};

/// How far an array is.
struct ArrayView {
  std::string indexes;     ///< "0-999%50"
  std::string unexpanded;  ///< Those that are no jobs yet: "51-999".
  int64_t count = 0;
  int64_t waiting = 0;  ///< Those that are no jobs yet among them.
  int64_t running = 0;
  int64_t completed = 0, failed = 0, cancelled = 0;
};

/// A member of a job that is placed, or was last.
struct JobMember {
  int32_t part = 0;
  std::string state;  ///< "placed", "prepared", "running" or "ended"; empty: the attempt is over.
  std::string node_name;
  std::vector<std::string> gpus;  ///< "<node>-gpu-<index>"
};

struct JobView {
  JobId id;
  TenantId tenant;
  std::string name;
  Blob spec;  ///< A packed JobSpec; empty for a job whose specification is no longer kept.
  JobState state = JobState::kPending;
  JobReason reason = JobReason::kNone;
  EndCause cause = EndCause::kNone;  ///< How its last attempt ended.
  std::string wait_code;  ///< The dominant reason for waiting, one word; empty when it does not wait.
  std::string message;    ///< One sentence.
  int32_t priority = 0;
  int32_t gpu_count = 0;
  int32_t gpu_milli = 0;
  std::string mig_profile;           ///< Empty: it has no slice.
  std::optional<int32_t> mig_start;  ///< While it is placed: the slice's first slot of memory.
  int64_t gpu_memory_mb = 0;
  std::string gpu_model;            ///< "H100,A100": any of them.
  std::vector<PlaceRequest> place;  ///< None or one.
  int64_t cpu_milli = 0, memory_mb = 0;
  Duration max_runtime = {};
  int32_t exit_code_retries = 0, system_retries = 0;
  bool overlap_allowed = false;
  bool tolerates_node_loss = false;
  Duration kill_after_lost_contact = {};
  bool held = false;  ///< Waits until it is released.
  uint32_t retry_causes = 0;
  std::string retry_exit_codes;
  Time begin_at;  ///< While it waits for it.
  Time deadline;
  std::vector<JobDependency> dependencies;
  JobId array;                          ///< Of an element.
  std::optional<int64_t> array_index;   ///< Of an element.
  std::optional<ArrayView> array_view;  ///< Of an array.
  Time submitted_at, scheduled_at, started_at, completed_at, checkpointed_at;
  std::optional<int32_t> exit_code;
  int32_t signal = 0;
  int32_t attempts = 0, preempted_count = 0;
  PreemptionMode preemption_mode = PreemptionMode::kRequeue;
  WorkClass work = WorkClass::kUnset;
  std::string reservation;        ///< Its name, or its id when it is over.
  std::string node_name;          ///< Of its first member.
  std::vector<std::string> gpus;  ///< "<node>-gpu-<index>", of all members.
  std::vector<JobPart>
      parts;  ///< Of a job of several members: what each of them needs. The first stands above too.
  bool one_member_per_node = false;
  DomainLevel domain = DomainLevel::kAny;
  bool domain_required = false;
  std::vector<JobMember> members;  ///< Of such a job, by rank.
  int64_t queue_position = 0;      ///< 1 is next; 0 when it does not wait.
  Duration estimated_wait = {};
  WatchdogFinding watch =
      WatchdogFinding::kNone;  ///< What it is warned about while it runs, or was ended for.
  std::string watch_detail;
  std::string move_detail;  ///< Of its last move, or the last one for its sake; empty: none.
  Time moved_at;
  Time watch_since;
  uint64_t version = 0;  ///< Changes with every change of the job.
};

/// Another text for a field of a job's specification.
struct TextChange {
  int number = 0;  ///< The field's, in gpusched.v1.JobSpec.
  std::string text;
};

/// What changes of a waiting or running job; only what is given.
struct JobUpdate {
  std::optional<int32_t> priority;      ///< Only while it waits.
  std::optional<Duration> max_runtime;  ///< From the attempt's start; zero: no limit.
  std::vector<TextChange> texts;
  bool moves_begin = false, moves_deadline = false;
  Time begin_at, deadline;
  Duration begin_after = {}, deadline_after = {};  ///< Neither time nor span: now, or none any more.
  std::optional<int32_t> gpu_count;                ///< What it needs: only while it waits.
  std::optional<int64_t> gpu_memory_mb;
  std::optional<std::string> gpu_model;
  std::optional<int32_t> cpu_milli;
  std::optional<int64_t> memory_mb;

  bool changes_parts() const { return gpu_count || gpu_memory_mb || gpu_model || cpu_milli || memory_mb; }
};

/// What of a job is shown beyond its record: long lists leave out what is not asked for.
struct JobDetails {
  bool name = true;
  bool message = true;
  bool place = true;  ///< In line, and the wait for it.
  bool gpus = true;
};

struct JobFilter {
  std::string tenant;  ///< Empty: all.
  std::optional<JobState> state;
  int64_t limit = 50;
  int64_t offset = 0;
  JobId before;      ///< Given: only jobs older than it.
  std::string name;  ///< Given: only jobs of this name; '*' and '?' stand for any text and any byte.
  std::string user;  ///< Given: only jobs that this user submitted, or that run as it.
  std::vector<std::pair<std::string, std::optional<std::string>>>
      labels;              ///< All of them; any value or this.
  Time since;              ///< Given: only jobs submitted then or later.
  bool anonymous = false;  ///< Only of tenants that callers without a credential may use.
  JobDetails details;

  /// Whether it looks into jobs: how many match is not known then.
  bool looks_inside() const { return !name.empty() || !user.empty() || !labels.empty() || since.valid(); }
};
struct JobPage {
  std::vector<JobView> jobs;     ///< Newest first.
  std::optional<int64_t> total;  ///< All that match; not known when the filter looks inside.
  JobId next;  ///< Given: there may be more, to be asked for with this as `before`; a page may be short.
};

/// What became different at `sequence`.
struct ChangeNotice {
  uint64_t sequence = 0;
  std::vector<JobId> jobs;  ///< Ascending.
  std::vector<NodeId> nodes;
};

/// When a waiting job starts, as the forecast says; see forecast::Estimate.
struct StartEstimateView {
  Time made_at;
  Time p50, p90;  ///< Not valid: not known.
  Time later_than;
  bool stuck = false;
  int64_t place = 0;
  uint32_t runs = 0;
};

/// A changed request that would start now.
struct ChangeView {
  std::string kind, flags;
  int32_t gpu_count = 0;
  int64_t gpu_memory_mb = 0;  ///< Of all GPUs together.
  std::string gpu_model;
  int64_t cpu_milli = 0, memory_mb = 0;
  Duration max_runtime = {};
  std::string node_name;
  std::vector<std::string> gpus;
};

/// Numbers by name.
using Evidence = std::vector<std::pair<std::string_view, int64_t>>;

struct ExplainView {
  JobId id;
  JobState state = JobState::kPending;
  std::string reason, message;
  std::vector<std::string> lifted_by;
  int64_t queue_position = 0;
  Time estimated_start;  ///< Of a blocked job for which it is kept free; none for others.
  Evidence evidence;
  std::optional<StartEstimateView> estimate;  ///< Of a job that waits.
  std::vector<ChangeView> changes;            ///< The first costs least.
};

/// What could move so that waiting jobs start.
struct MoveView {
  JobId job;
  std::string from_node, to_node;
  std::vector<std::string> from_gpus, to_gpus;
  int64_t gpu_count = 0;
  int64_t lost_gpu_ms = 0;
  bool saved = false;
  int64_t ended_before = 0;
};
struct MoveProposalView {
  std::string id;
  JobId job;
  std::string node_name;
  std::vector<std::string> gpus;
  std::vector<MoveView> moves;
  int64_t lost_gpu_ms = 0;
  std::vector<JobId> starts;
  int64_t gpus_started = 0;
  Time otherwise;  ///< None: not known.
  int64_t unusable_milli_before = 0, unusable_milli_after = 0;
};
struct MovesView {
  struct Unmoved {
    JobId job;
    std::string message;
  };
  Time at;
  std::string_view mode;  ///< off, propose, act
  std::vector<MoveProposalView> proposals;
  std::vector<Unmoved> unmoved;
  int64_t gpus_free = 0;
  int64_t unusable_milli = 0;
  bool stopped_early = false;
  std::string message;
};
struct MovesRequest {
  std::string tenant;     ///< Given: it is refused.
  JobId job;              ///< None: for whatever waits.
  int64_t moves_max = 0;  ///< 0: the usual number.
};
struct ApplyMoves {
  std::string id, by, reason;
};

/// What a submission would come to.
struct PlanView {
  struct Displaced {
    JobId job;  ///< None: another tenant's, which is not shown.
    int64_t gpu_count = 0;
  };
  struct Quota {
    TenantId tenant;
    std::string_view resource;
    int64_t used_after = 0, limit = 0;
  };
  TenantId tenant;
  bool starts_now = false;
  std::string node_name;
  std::vector<std::string> gpus;
  std::vector<Displaced> displaces;
  std::string reason, message;
  std::vector<std::string> lifted_by;
  Evidence evidence;
  std::optional<StartEstimateView> estimate;
  std::vector<ChangeView> changes;
  std::optional<Duration> run_p50, run_p90;
  std::optional<int64_t> gpu_seconds_reserved, gpu_seconds_expected;
  std::vector<Quota> quota;
};

struct SliceView {
  JobId job;
  std::string profile;
  int32_t start = 0;  ///< Its first slot of memory.
  bool draining = false;
};
struct DeviceView {
  uint32_t index = 0;
  std::string uuid, model;
  int64_t memory_mb = 0;
  std::string state;      ///< free, held, draining, quarantined, shared
  std::string condition;  ///< ok, unhealthy, missing, hot, faulty
  std::string detail;
  JobId held_by;
  int32_t utilization_percent = 0;
  int64_t memory_used_mb = 0;
  int32_t temperature_celsius = 0;
  int32_t milli_used = 0;       ///< Of one that is shared: what its shares have, in thousandths,
  int64_t memory_mb_given = 0;  ///< and of its memory.
  std::vector<JobId> shared_by;
  /// Who keeps it from new work, an operator or "scheduler", and why; empty: nobody does.
  std::string quarantined_by, quarantine_reason;
  FaultClass fault = FaultClass::kNone;  ///< What stands against it, of its node,
  std::string fault_code, fault_detail;
  Time fault_at;                     ///< since when.
  std::optional<int32_t> numa_node;  ///< Not given: not known.
  std::string pci_bus_id;
  std::optional<int32_t> island;  ///< Not given: it is joined to no other.
  bool mig = false;               ///< In MIG mode;
  std::string mig_room;           ///< what still fits, "1x 3g.40gb, 4x 1g.10gb";
  std::vector<SliceView> slices;  ///< what it is cut into, by their starts.
};
struct LinkView {
  int32_t from = 0, to = 0;  ///< Indexes of two devices.
  std::string_view kind;
  int64_t bandwidth_gbs = 0;
};
struct NodeView {
  NodeId id;
  std::string name;
  NodeState contact = NodeState::kReady;
  /// validating, ready, draining, drained, down
  std::string state;
  std::string state_by, state_reason;  ///< Who put it there, and why.
  Time state_since;
  std::string suspect;  ///< Why an operator should look at it; empty: no reason is known.
  Time suspect_since;
  std::string boot_id;
  std::vector<std::string> features;
  std::vector<Label> labels;  ///< The agent's with the operator's over them.
  int64_t cpu_milli = 0, cpu_milli_free = 0, memory_mb = 0, memory_mb_free = 0;
  std::vector<DeviceView> devices;
  int32_t attempts = 0;
  double cpu_utilization = 0, memory_utilization = 0;  ///< 0..1
  std::string version;
  std::vector<LinkView> links;  ///< Of each two devices, where that is known.
  std::string topology_note;
};

struct ClusterView {
  int64_t total_nodes = 0, online_nodes = 0, total_gpus = 0, available_gpus = 0;
  int64_t total_jobs = 0;  ///< Ever accepted.
  int64_t running_jobs = 0, pending_jobs = 0;
  uint64_t sequence = 0;
  double average_gpu_utilization = 0;  ///< 0..1 over devices that report it.
};

/// How good what was said beforehand turned out to be. Of all tenants, and of each of a bounded number.
struct QualityView {
  struct Score {
    std::string tenant;  ///< Empty: all; "other": all that are not listed.
    int64_t count = 0;
    int64_t p50_covered = 0, p90_covered = 0;
    double p50_pinball_sum = 0, p90_pinball_sum = 0;  ///< Seconds.
    double error_sum = 0, early_sum = 0;              ///< Seconds; of starts only.
  };
  std::vector<Score> run_times, starts;  ///< The first is of all.
  std::vector<int64_t> error_bounds;     ///< Seconds; distances of starts from what was said.
  std::vector<int64_t> error_buckets;    ///< One more than bounds; not cumulative.
  int64_t forecasts = 0;
  double forecast_seconds = 0, copy_seconds = 0;
};

struct HealthView {
  bool serving = true;  ///< Writes are accepted.
  std::string reason;   ///< Why not; one sentence.
  ErrorKind kind = ErrorKind::kUnavailable;
  std::vector<std::string> concerns;  ///< What is not as it should be although it serves; a sentence each.
};

/// Counters for Prometheus. Everything is since the start unless it says "now".
struct MetricsView {
  struct State {
    JobState state;
    int64_t total = 0;  ///< Jobs that entered the state.
  };
  std::vector<State> jobs;
  int64_t queue_size = 0;  ///< Waiting now.
  int64_t preemptions = 0;
  struct Gpu {
    std::string node, gpu;
    double utilization = 0;  ///< 0..1
  };
  std::vector<Gpu> gpus;
  std::vector<double> latency_bounds;  ///< Seconds; upper bounds, without +Inf.
  std::vector<int64_t>
      latency_buckets;  ///< One more than bounds; not cumulative. Time from submission to placement.
  double latency_sum = 0;
  int64_t latency_count = 0;
  /// Seconds from a job's asking for what its tenant is guaranteed, or its pool's, to its start on what
  /// others gave back; by the same bounds.
  std::vector<int64_t> reclaim_buckets;
  double reclaim_sum = 0;
  int64_t reclaim_count = 0;
  /// Further ones without labels.
  struct Counter {
    std::string_view name, type, help;  ///< Of static storage; `type` is "counter" or "gauge".
    int64_t value = 0;
  };
  std::vector<Counter> counters;
  QualityView quality;
};

/// A text that is looked for in an output; lines from its end.
inline constexpr std::size_t kGrepBytesMax = 1'024;
inline constexpr int64_t kTailLinesMax = 1'000'000;

struct LogRequest {
  JobId job;
  std::string tenant;      ///< Given: the job must be this tenant's.
  bool anonymous = false;  ///< The job must be of a caller without a credential, in a tenant open to these.
  uint32_t attempt = 0;    ///< 0: the latest.
  uint32_t member = 0;     ///< Of a gang: whose output.
  bool from_stderr = false;
  int64_t offset = 0;
  int32_t size_max = 65'536;
  Duration wait = {};  ///< How long to wait for more at the end of a running attempt's output.
  /// Where the first piece begins; of no use for the ones after it, which go on at `LogPiece::next_offset`.
  int64_t tail_lines = 0;   ///< Positive: at the last so many lines, whatever `offset` is.
  Time since = {};          ///< Valid: at what was written at or after this time, as well as the node knows.
  std::string grep;         ///< Only lines that hold this text, chosen on the node; it has no line feed.
  bool timestamps = false;  ///< Whole lines, each behind the time at which it was there at the latest.

  /// Whether pieces hold whole lines, whose bytes are not those from `LogPiece::offset` on.
  bool of_lines() const { return timestamps || !grep.empty(); }
  /// Asks for what follows `piece`.
  void go_on(const struct LogPiece& piece);
};
/// Part of an output. An offset names a byte of the whole output, whatever of it is still kept.
struct LogPiece {
  std::string data;         ///< With `of_lines` whole lines, which need not follow each other.
  int64_t offset = 0;       ///< Of `data`.
  int64_t next_offset = 0;  ///< Where to go on. Without data and progress: at the end, for now.
  int64_t skipped = 0;  ///< So many bytes of what was asked for are no longer kept; they came before `data`.
  bool at_end = false;  ///< Nothing follows, ever.
  uint32_t attempt = 0;
};
inline void LogRequest::go_on(const LogPiece& piece) {
  // An attempt is followed to its end, even when another one has begun meanwhile.
  if (attempt == 0) attempt = piece.attempt;
  offset = piece.next_offset;
  tail_lines = 0;
  since = {};
}

/// An interactive command in a running attempt, or one that was detached from.
struct SessionRequest {
  JobId job;
  std::string tenant;                ///< Given: the job must be this tenant's.
  bool anonymous = false;            ///< As of LogRequest.
  uint32_t attempt = 0;              ///< 0: the latest.
  uint32_t member = 0;               ///< Of a gang: which of its processes' nodes.
  std::vector<std::string> command;  ///< Empty: the user's login shell.
  bool terminal = false;             ///< In a pseudo terminal; else with pipes.
  uint32_t rows = 0, columns = 0;
  std::string term;
  std::vector<std::pair<std::string, std::string>> environment;
  uint64_t session = 0;  ///< Given: this session of the job is taken up again; what is above is ignored.
};

/// A session's near end, which the door makes. Called on the host's thread, in order; it must not block.
class SessionPeer {
 public:
  struct End {
    std::optional<ApiError> error;  ///< Why there is no exit code, or none of the command's own.
    int32_t exit_code = 0, signal = 0;
    std::string message;  ///< One sentence beside an exit code; usually none.
  };
  virtual ~SessionPeer() = default;
  virtual void on_number(uint64_t session) = 0;
  virtual void on_opened() = 0;
  /// Not more than was granted: limits::kSessionCreditBytes at first, then what `SessionHandle::grant` adds.
  virtual void on_output(std::string data, bool of_stderr) = 0;
  /// So many more bytes of input may be sent; at first limits::kSessionCreditBytes.
  virtual void on_credit(int64_t bytes) = 0;
  /// The last call.
  virtual void on_end(End end) = 0;
};

/// The way to a session's command. Thread-safe; nothing here waits.
class SessionHandle {
 public:
  virtual ~SessionHandle() = default;
  virtual void input(std::string data) = 0;
  virtual void end_input() = 0;
  virtual void resize(uint32_t rows, uint32_t columns) = 0;
  virtual void signal(uint32_t number) = 0;
  virtual void grant(int64_t bytes) = 0;
  /// Leaves it running without a peer. The peer is not called any more.
  virtual void detach() = 0;
  /// Ends it. The peer is not called any more.
  virtual void close() = 0;
};

struct FileRequest {
  JobId job;
  std::string tenant;      ///< Given: the job must be this tenant's.
  bool anonymous = false;  ///< As of LogRequest.
  uint32_t attempt = 0;    ///< 0: the latest.
  uint32_t member = 0;
  std::string path;
  uint64_t transfer = 0;  ///< Of the piece before; 0: the first one is asked for.
  int64_t offset = 0;     ///< Behind the piece before.
  bool close = false;     ///< No more of this transfer is wanted; there is no answer.
};
struct FilePiece {
  std::string data;
  uint64_t transfer = 0;
  int64_t size = 0;     ///< Of the whole file.
  uint32_t mode = 0;    ///< Permission bits.
  bool at_end = false;  ///< Nothing follows.
  uint32_t attempt = 0;
};

/// Everything is thread-safe and returns at once; answers come by `Done`.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Called on the host's thread after the last answer of each group: the moment to wake others, once.
  /// To be set before serving begins.
  virtual void on_group_done(std::function<void()> hook) = 0;

  virtual void submit(SubmitRequest request, Done<Submitted> done) = 0;
  /// kJobFinished when it ended before. `tenant` empty: any.
  virtual void cancel(JobId job, const std::string& tenant, Done<Unit> done) = 0;
  virtual void create_tenant(TenantRequest request, Done<TenantView> done) = 0;
  virtual void update_tenant(const std::string& tenant, TenantRequest request, Done<TenantView> done) = 0;
  virtual void delete_tenant(const std::string& tenant, Done<Unit> done) = 0;
  /// The error's field names the edit that is refused, such as "tenants[2].max_gpus".
  virtual void edit_cluster(EditsRequest request, Done<EditsView> done) = 0;
  virtual void confirm_dead(const std::string& node, Done<NodeView> done) = 0;
  /// Takes a node off the books. kNodeAlive while its agent is connected, kNodeBusy while it holds work or is
  /// reserved. `by` is logged.
  virtual void remove_node(const std::string& node, const std::string& by, Done<Unit> done) = 0;
  /// An operator's word on a device: kUnhealthy quarantines it, kOk ends that. `by` and `detail` are shown.
  virtual void set_condition(const std::string& node, uint32_t index, DeviceCondition condition,
                             const std::string& detail, const std::string& by, Done<NodeView> done) = 0;

  virtual void update_job(JobId job, const std::string& tenant, JobUpdate update, Done<JobView> done) = 0;
  /// Held: a waiting job stays where it is until it is released.
  virtual void hold_job(JobId job, const std::string& tenant, bool held, Done<JobView> done) = 0;
  /// Ends a placed job's attempt and puts the job back in line, without spending a retry.
  virtual void requeue_job(JobId job, const std::string& tenant, Done<JobView> done) = 0;
  /// `by` is shown beside the reason.
  virtual void drain_node(const std::string& node, const std::string& by, const std::string& reason,
                          Done<NodeView> done) = 0;
  virtual void resume_node(const std::string& node, const std::string& by, Done<NodeView> done) = 0;
  /// kNodeNotDrained while it takes work or runs something.
  virtual void reboot_node(const std::string& node, const std::string& reason, Done<NodeView> done) = 0;
  virtual void label_node(const std::string& node, std::vector<Label> set, std::vector<std::string> remove,
                          Done<NodeView> done) = 0;

  virtual void make_reservation(ReservationRequest request, Done<ReservationView> done) = 0;
  /// By begin.
  virtual void list_reservations(Done<std::vector<ReservationView>> done) = 0;
  /// By its name or its id.
  virtual void cancel_reservation(const std::string& reservation, Done<Unit> done) = 0;

  virtual void get_job(JobId job, const std::string& tenant, Done<JobView> done) = 0;
  /// Calls `changed` with the job now and after each change, the last time in a final state. Stops for good
  /// once the token is dropped; `changed` may still run once while it is being dropped.
  virtual std::shared_ptr<void> watch_job(JobId job, const std::string& tenant, Done<JobView> changed) = 0;
  virtual void list_jobs(JobFilter filter, Done<JobPage> done) = 0;
  /// Those of the given jobs that exist and match; in the given order. `limit`, `offset` and `before` do not
  /// count.
  virtual void get_jobs(std::vector<JobId> ids, JobFilter filter, Done<JobPage> done) = 0;
  /// Calls `changed` on the observer's thread with what each batch of changes touched, until the token is
  /// dropped; it may still run once while it is being dropped. It must not block.
  virtual std::shared_ptr<void> watch_changes(std::function<void(const ChangeNotice&)> changed) = 0;
  /// Says what becomes of a submission of one job, and does nothing. Refused for what the submission would be
  /// refused for. On a thread that may take seconds; kUnavailable when too many ask. A tenant that is named
  /// sees nothing of other tenants' jobs; that goes for `explain_job` too.
  virtual void plan(SubmitRequest request, Done<PlanView> done) = 0;
  virtual void explain_job(JobId job, const std::string& tenant, Done<ExplainView> done) = 0;
  /// Which running jobs could go on elsewhere so that others start. On the same thread as `plan`.
  virtual void get_moves(MovesRequest request, Done<MovesView> done) = 0;
  /// Carries out a proposal of the last answers. kMoveStale when it no longer holds, or is not known.
  virtual void apply_moves(ApplyMoves request, Done<MoveProposalView> done) = 0;
  virtual void get_tenant(const std::string& tenant, Done<TenantView> done) = 0;
  virtual void list_tenants(Done<std::vector<TenantView>> done) = 0;
  virtual void list_nodes(Done<std::vector<NodeView>> done) = 0;
  virtual void get_node(const std::string& node, Done<NodeView> done) = 0;
  virtual void get_cluster(Done<ClusterView> done) = 0;
  /// `tenant` given: without the scores of others and of all.
  virtual void get_quality(const std::string& tenant, Done<QualityView> done) = 0;
  virtual void get_metrics(Done<MetricsView> done) = 0;
  /// Relays one piece of an attempt's output from its node.
  virtual void read_log(LogRequest request, Done<LogPiece> done) = 0;

  /// Opens, or takes up, a session. Refusals come to the peer as its end.
  virtual std::shared_ptr<SessionHandle> open_session(SessionRequest request,
                                                      std::shared_ptr<SessionPeer> peer) = 0;
  /// One piece of a file of an attempt, running or ended.
  virtual void read_file(FileRequest request, Done<FilePiece> done) = 0;

  /// Cheap; any thread.
  virtual HealthView health() const = 0;
  /// Whether any node can run container images now. Cheap; any thread.
  virtual bool containers_possible() const = 0;
};

}  // namespace gpusched::api
