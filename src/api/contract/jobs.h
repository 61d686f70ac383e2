#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/blob.h"
#include "base/ids.h"
#include "base/time.h"
#include "engine/messages/commands.h"
#include "model/job.h"
#include "model/types.h"

/// Jobs: submitting, changing, showing and watching them.
namespace gpusched::api {

/// One part of a job: so many members, and what each needs on its node.
struct JobPart {
  int32_t members = 1;
  int32_t members_max = 0;  ///< As many as fit at the start, up to this; 0: `members` of them.
  int32_t gpu_count = 0;
  int32_t gpu_milli = 0;
  int64_t gpu_memory_mb = 0;  ///< For all of a member's GPUs together.
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
  int64_t gpu_memory_mb = 0;  ///< For all GPUs together; for a share: its own.
  bool memory_is_default = false;  ///< Nobody asked for that: what was learned of such tasks may replace it.
  std::string gpu_model;
  int64_t cpu_milli = 1000;
  int64_t memory_mb = 0;
  std::optional<int32_t> priority;  ///< Not given: the configured default.
  Duration max_runtime = {};        ///< Zero: no limit.
  int32_t exit_code_retries = 0;
  int32_t system_retries = 0;  ///< 0: the default; -1: never.
  bool overlap_allowed = false;
  bool tolerates_node_loss = false;  ///< Gangs only: goes on without members whose nodes were lost.
  Duration kill_after_lost_contact = {};
  bool require_feasible = false;
  bool wants_container = false;  ///< An image is given.
  bool external = false;         ///< Another program starts it, on an external node.
  bool held = false;             ///< Waits until it is released.
  uint32_t retry_causes = 0;     ///< See RetryPolicy::causes.
  std::string retry_exit_codes;  ///< See RetryPolicy::exit_codes.
  std::vector<JobFlow> flow;     ///< None or one; see the engine's.
  PreemptionMode preemption_mode = PreemptionMode::kRequeue;
  bool interactive = false;  ///< Starts at once or not at all.
  WorkClass work = WorkClass::kUnset;
  std::string reservation;          ///< The name of one; empty: none.
  std::vector<PlaceRequest> place;  ///< None or one: where it may run. With models, `gpu_model` is empty.
  int64_t gpu_memory_each_mb = 0;   ///< For each GPU at least.
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

struct SubmitRequest {
  std::string tenant;  ///< "tenant-<digits>", "default" or a tenant's name; empty: the default one.
  std::vector<JobRequest> jobs;
  std::string request_key;
  std::string by = {};  ///< Requester, for people.
  /// It is a service's record whose settings came as fields of the services API: refusals name those.
  bool names_fields = false;
  /// It comes from a door that marks its jobs by labels which no other door may set.
  bool sets_reserved_labels = false;
};

/// A request to run an ended job again.
struct RerunRequest {
  std::string tenant;               ///< Given: only this tenant's job.
  bool failed = false;              ///< Only an array's elements that failed.
  std::vector<IndexRange> indexes;  ///< Only these elements of an array; empty: all.
  int64_t at_once = 0;              ///< Elements that run at a time; 0: as before.
  std::string request_key;
  std::string by = {};  ///< Requester, for people.
};

struct Submitted {
  JobId first_job;  ///< The batch's ids follow each other, except behind arrays.
  uint32_t job_count = 0;
  std::vector<uint32_t> numbers;  ///< Number that each job took; empty: one each.
  int64_t queue_position = 0;     ///< Place of the first job, at that moment; an estimate.

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

/// Resources that an attempt used; what is not known is not given.
struct UsageView {
  std::optional<int64_t> peak_memory_bytes;
  std::string_view peak_memory_of;  ///< "all_processes" or "largest_process"; empty without a peak.
  std::optional<int64_t> cpu_ms;
  std::optional<int32_t> gpu_use_permille;
  int32_t members_unknown = 0;
  std::optional<int64_t> peak_gpu_memory_mb = {};

  bool is_known() const { return peak_memory_bytes || cpu_ms || gpu_use_permille || peak_gpu_memory_mb; }
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
  JobId array;                          ///< Array of an element.
  std::optional<int64_t> array_index;   ///< Index of an element.
  std::optional<ArrayView> array_view;  ///< Only for an array.
  Time submitted_at, scheduled_at, started_at, completed_at, checkpointed_at;
  std::optional<int32_t> exit_code;
  int32_t signal = 0;
  int32_t attempts = 0, preempted_count = 0;
  PreemptionMode preemption_mode = PreemptionMode::kRequeue;
  WorkClass work = WorkClass::kUnset;
  std::string reservation;        ///< Its name, or its id when it is over.
  std::string node_name;          ///< Node of its first member.
  std::vector<std::string> gpus;  ///< "<node>-gpu-<index>", of all members.
  std::vector<JobPart>
      parts;  ///< Needs of each member, for a job of several members. The first member stands above too.
  bool one_member_per_node = false;
  DomainLevel domain = DomainLevel::kAny;
  bool domain_required = false;
  std::vector<JobMember> members;          ///< Members of such a job, by rank.
  bool is_being_cancelled = false;         ///< Somebody asked for it, and it has not ended yet.
  int64_t queue_position = 0;              ///< 1 is next; 0 when it does not wait.
  std::optional<Duration> estimated_wait;  ///< By the newest forecast; nothing when it does not know.
  WatchdogFinding watch =
      WatchdogFinding::kNone;  ///< Warning while it runs, or the finding that it was ended for.
  std::string watch_detail;
  std::string move_detail;  ///< Its last move, or the last one for its sake; empty: none.
  Time moved_at;
  Time watch_since;
  UsageView usage;           ///< Use of its last attempt, once that has ended.
  std::string submitted_by;  ///< Submitter, for people; empty: not known.
  std::string owner;         ///< Owner, by its credential; empty: not known.
  uint64_t version = 0;      ///< Changes with every change of the job.
};

/// Another text for a field of a job's specification.
struct TextChange {
  int number = 0;  ///< The field's, in gpusched.v1.JobSpec.
  std::string text;
};

/// Changes to a waiting or running job; only what is given.
struct JobUpdate {
  std::string by = {};                  ///< As in JobBackend.
  std::optional<int32_t> priority;      ///< Only while it waits.
  std::optional<Duration> max_runtime;  ///< From the attempt's start; zero: no limit.
  /// In place of `max_runtime`: a longer limit that the job has by then stays.
  std::optional<Duration> max_runtime_at_least;
  std::vector<TextChange> texts;
  bool moves_begin = false, moves_deadline = false;
  Time begin_at, deadline;
  Duration begin_after = {}, deadline_after = {};  ///< Neither time nor span: now, or none any more.
  std::optional<int32_t> gpu_count;                ///< New needs, this and the next: only while it waits.
  std::optional<int64_t> gpu_memory_mb;
  std::optional<std::string> gpu_model;
  std::optional<int32_t> cpu_milli;
  std::optional<int64_t> memory_mb;

  bool changes_parts() const { return gpu_count || gpu_memory_mb || gpu_model || cpu_milli || memory_mb; }
  bool changes_runtime() const { return max_runtime || max_runtime_at_least; }
};

/// Parts of a job that are shown beyond its record: long lists leave out what is not asked for.
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
  JobId before;       ///< Given: only jobs older than it.
  std::string name;   ///< Given: only jobs of this name; '*' and '?' stand for any text and any byte.
  std::string user;   ///< Given: only jobs that this user submitted, or that run as it.
  std::string owner;  ///< Given: only jobs of this owner, as JobView has it.
  std::vector<std::pair<std::string, std::optional<std::string>>>
      labels;                  ///< All of them; any value or this.
  Time since;                  ///< Given: only jobs submitted then or later.
  std::optional<bool> online;  ///< Given: only jobs of online work, or only others.
  /// Only jobs that wait in line, in the order of the line; `state` must be kPending, `before` not given.
  bool in_line = false;
  JobDetails details;

  /// Whether it looks into jobs: how many match is not known then.
  bool looks_inside() const { return asks_for_description() || since.valid() || online; }
  /// Whether what it finds tells something of how the job is described.
  bool asks_for_description() const {
    return !name.empty() || !user.empty() || !owner.empty() || !labels.empty();
  }
};
struct JobPage {
  std::vector<JobView> jobs;     ///< Newest first.
  std::optional<int64_t> total;  ///< All that match; not known when the filter looks inside.
  /// Jobs asked for by id that only their state keeps out, with it; then the ids that are not known.
  std::vector<std::pair<JobId, JobState>> left = {};
  std::vector<JobId> unknown = {};
  JobId next;  ///< Given: there may be more, to be asked for with this as `before`; a page may be short.
};

/// The changes at `sequence`.
struct ChangeNotice {
  uint64_t sequence = 0;
  std::vector<JobId> jobs;  ///< Ascending.
  std::vector<NodeId> nodes;
  uint64_t forgotten = 0;  ///< Jobs that had ended and are not known any more, the oldest ends.
};

/// Where a watch of changes begins.
struct WatchBegin {
  uint64_t sequence = 0;  ///< Every change behind it is told from now on.
  /// The changes between the number that was asked for and `sequence`. None: nothing was asked for, or it is
  /// not known any more.
  std::optional<ChangeNotice> missed;
};

/// One line of a job's timeline.
struct HistoryLine {
  Time at;
  std::string event;    ///< One word, as in JobHistory of the native API.
  std::string message;  ///< The same as a sentence.
  uint32_t attempt = 0;
  std::string node;  ///< Node of the attempt's first member; empty: not for this line, or removed since.
  uint32_t members = 0;
  std::string cause = {};  ///< The attempt's end; its exit code or signal follows.
  int32_t exit_code = 0, signal = 0;
  std::string by = {};   ///< Requester.
  UsageView usage = {};  ///< Use of an attempt that ended.
};
struct HistoryView {
  JobId id;
  uint64_t dropped = 0;  ///< Lines between the first and the second that are kept no longer.
  std::vector<HistoryLine> lines;
};

/// Jobs: submitting, changing, showing and watching them. Everything is thread-safe and returns at once;
/// answers come by `Done`. `by` says for people who asks for a change: it is shown in the job's timeline.
class JobBackend {
 public:
  virtual ~JobBackend() = default;

  virtual void submit(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done) = 0;
  /// kJobFinished when it ended before. `tenant` empty: any.
  virtual void cancel(const CallerPtr& caller, JobId job, const std::string& tenant, const std::string& by,
                      Done<Unit> done) = 0;
  virtual void update_job(const CallerPtr& caller, JobId job, const std::string& tenant, JobUpdate update,
                          Done<JobView> done) = 0;
  /// Held: a waiting job stays where it is until it is released.
  virtual void hold_job(const CallerPtr& caller, JobId job, const std::string& tenant, bool held,
                        const std::string& by, Done<JobView> done) = 0;
  /// Ends a placed job's attempt and puts the job back in line, without spending a retry.
  virtual void requeue_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                           const std::string& by, Done<JobView> done) = 0;
  /// Submits an ended job again as it was asked for: a new job of the caller, without the old one's
  /// dependencies, earliest start and deadline. An array's elements keep their indexes.
  virtual void rerun_job(const CallerPtr& caller, JobId job, RerunRequest request, Done<Submitted> done) = 0;
  virtual void get_job(const CallerPtr& caller, JobId job, const std::string& tenant, Done<JobView> done) = 0;
  /// The job's events and who asked for them, oldest first.
  virtual void get_history(const CallerPtr& caller, JobId job, const std::string& tenant,
                           Done<HistoryView> done) = 0;
  /// Calls `changed` with the job now and after each change, the last time in a final state. Stops for good
  /// once the token is dropped; `changed` may still run once while it is being dropped.
  virtual std::shared_ptr<void> watch_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                                          Done<JobView> changed) = 0;
  virtual void list_jobs(const CallerPtr& caller, JobFilter filter, Done<JobPage> done) = 0;
  /// Those of the given jobs that exist and match; in the given order. `limit`, `offset` and `before` do not
  /// count.
  virtual void get_jobs(const CallerPtr& caller, std::vector<JobId> ids, JobFilter filter,
                        Done<JobPage> done) = 0;
  /// Calls `changed` on the observer's thread with what each batch of changes touched, until the token is
  /// dropped; it may still run once while it is being dropped. It must not block. `begun` is called once, on
  /// the same thread, with what changed behind the sequence number `since`, if one is given.
  virtual std::shared_ptr<void> watch_changes(const CallerPtr& caller, std::optional<uint64_t> since,
                                              std::function<void(const ChangeNotice&)> changed,
                                              std::function<void(const WatchBegin&)> begun) = 0;
};

}  // namespace gpusched::api
