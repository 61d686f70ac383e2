#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/fields.h"
#include "base/ids.h"
#include "base/rare.h"
#include "base/time.h"
#include "model/index/ordered_jobs.h"
#include "model/types.h"

namespace gpusched {

/// Steps of a job, and requests about it. Numbers are for ever: they are packed into the state.
enum class JobStep : uint8_t {
  kPlaced = 1,     ///< An attempt was placed: `attempt`, `node` of its first member, `members`.
  kStarted,        ///< All its members run.
  kEnded,          ///< The attempt ended: `cause`, `exit_code`, `signal`, `detail`, `usage`.
  kAbandoned,      ///< The job goes on without the attempt, whose node does not answer.
  kRequeued,       ///< Waits again, and not before `until`.
  kPreempted,      ///< Likewise, after it was ended for another job.
  kHeldByFailure,  ///< Likewise, and is held.
  kFinished,       ///< `state` and `reason`.
  kCancelAsked,    ///< `by` asked for it, as for the following.
  kHoldAsked,
  kReleaseAsked,
  kRequeueAsked,
  kChangeAsked,
};
inline constexpr JobStep kJobStepLast = JobStep::kChangeAsked;
std::string_view to_string(JobStep step);
constexpr bool is_asked(JobStep step) { return step >= JobStep::kCancelAsked; }

struct JobHistoryEntry {
  JobStep step = JobStep::kPlaced;
  Time at;  ///< Whole milliseconds.
  uint32_t attempt = 0;
  NodeId node;
  uint32_t members = 0;
  EndCause cause = EndCause::kNone;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string detail;  ///< At most limits::kHistoryDetailMax bytes.
  AttemptUsage usage = {};
  Time until;
  JobState state = JobState::kPending;
  JobReason reason = JobReason::kNone;
  std::string by;

  friend bool operator==(const JobHistoryEntry&, const JobHistoryEntry&) = default;
};

/// A job's timeline, oldest first.
struct JobHistory {
  uint64_t dropped = 0;  ///< Older entries than the first, which were dropped.
  std::vector<JobHistoryEntry> entries;
};

/// Appends an entry to a packed timeline; beyond limits::kHistoryEntriesMax the oldest is dropped. `since` is
/// the job's submission, from which times are counted; each entry takes some ten bytes.
Blob with_entry(const Blob& packed, Time since, const JobHistoryEntry& entry);
/// The entries that were packed with the same `since`. Entries that do not parse are left out.
JobHistory unpack_history(const Blob& packed, Time since);

/// Dependency of a job, open or settled.
struct JobDependency {
  enum class Verdict : uint8_t { kOpen = 0, kMet, kImpossible };
  JobId parent;
  DependencyKind kind = DependencyKind::kAfterOk;
  Verdict verdict = Verdict::kOpen;

  friend bool operator==(const JobDependency&, const JobDependency&) = default;
};

/// How a job was told to go on elsewhere, or others were for it. Nodes by name: they may be removed since.
struct MoveRecord {
  bool moved = false;         ///< Itself; otherwise others made room for it.
  std::string from;           ///< Empty: it was not known.
  std::string to;             ///< The node on which it goes on, or on which it starts.
  std::vector<JobId> others;  ///< Jobs for which it was moved, or which were moved for it.
  std::string by;             ///< Operator who requested it.
  std::string why;            ///< Reason, in the operator's words; may be empty.

  friend bool operator==(const MoveRecord&, const MoveRecord&) = default;
};

/// Fields that few jobs set, and none that waits for its first attempt. They are kept apart, so that a
/// million waiting jobs take little memory.
struct JobExtras {
  Blob last_detail;  ///< Detail of its last attempt's end; bounded when it is reported.
  /// "sha256:...": what the name of its image meant at its first attempt; empty: nobody said.
  Blob image_digest;
  Blob past_nodes;    ///< Nodes of the attempts before the last, oldest first, at most 16; eight bytes each.
  Blob member_nodes;  ///< Gangs only: nodes of the last attempt's members; eight bytes each.
  Time preempted_at;  ///< Last.
  Time saved_at;      ///< Up to then its last attempt said it saved its work.
  Time watch_since;   ///< Time since when the warning holds.
  Blob watch_detail;  ///< Evidence of the warning.
  Time moved_at;      ///< Time at which it was last moved, or others for it.
  Blob move_detail;   ///< Record of that move, packed: see move_record; of an earlier version: a sentence.
  uint32_t preempt_count = 0;                      ///< Number of preemptions after which it was requeued.
  WatchdogFinding watch = WatchdogFinding::kNone;  ///< Latest warning about its last attempt.

  friend bool operator==(const JobExtras&, const JobExtras&) = default;
};

/// One request for resources, as a small record; what it runs is one packed blob that the engine never reads.
/// Its size is what a waiting job costs, twice: members are sorted by theirs.
struct Job {
  JobId id;
  TenantId tenant;
  Blob spec;              ///< A packed JobSpec.
  int64_t order_key = 0;  ///< See `order_key_of`. Constant: aging never re-sorts a queue.
  Time submitted_at;
  Time scheduled_at;  ///< Time at which the last attempt was placed.
  Time started_at;    ///< Time at which the last attempt started.
  Time ended_at;
  Time not_before;       ///< While it backs off, or before it may begin.
  Duration max_runtime;  ///< Zero: no limit.
  RetryPolicy retry;
  NodeId node;                  ///< Node of the last attempt's first member.
  uint64_t device_mask = 0;     ///< Devices on that node.
  Time deadline;                ///< Time by which its last attempt must have started; none: no deadline.
  Blob dependencies;            ///< Packed: see dependency_list.
  JobId array;                  ///< Array that it is an element of; its own id for an array.
  int64_t attained_gpu_ms = 0;  ///< Held GPUs times milliseconds, of its ended attempts.
  Blob history;                 ///< Its timeline, packed: see timeline.
  Blob usage;  ///< Resources that its last attempt used, once that has ended, packed: see last_usage.
  /// Memory of GPUs for which it names no size, in its last attempt. Since feature level 10.
  int64_t given_gpu_memory_mb = 0;
  Blob submitted_by;  ///< Name of the submitter, for people; empty: not known. Since feature level 8.
  Rare<JobExtras> extras;
  uint32_t job_class = 0;  ///< Index into State::classes: its resources, interned.
  int32_t priority = 0;    ///< Its own priority, without its tenant's tier.
  uint32_t attempt_count = 0;
  uint32_t owner = 0;  ///< Its number in State::owners; 0: nobody is known to own it. Since feature level 9.
  int32_t exit_failures = 0;
  int32_t system_failures = 0;
  int32_t exit_code = 0;
  int32_t signal = 0;
  int32_t node_faults = 0;      ///< Consecutive attempts that failed by a fault of a node.
  int32_t elastic_members = 0;  ///< Members of its elastic part with which the last attempt was placed.
  /// Time that it asked for between its preemption and its end; 0: none, or not known. Since feature
  /// level 11.
  int32_t preempt_grace_ms = 0;
  uint16_t unmet = 0;  ///< Unmet dependencies: it waits, when it is pending, as long as there are any.
  JobState state = JobState::kPending;
  JobReason reason = JobReason::kSubmitted;
  EndCause last_cause = EndCause::kNone;
  OnParentFailure on_parent_failure = OnParentFailure::kCancel;
  PreemptionMode preemption_mode = PreemptionMode::kRequeue;
  bool cancel_requested = false;
  bool held = false;               ///< Waits, when it is pending, until it is released.
  bool ever_started = false;       ///< Whether any attempt has started; not known in old journals.
  bool runtime_changed = false;    ///< The attempt may have been started with another time limit.
  bool preemption_exempt = false;  ///< Never ended for another job.
  bool promised = false;           ///< Waits for what State::promises keeps for it, not in line.
  bool parked = false;             ///< An element that became a job before its turn, and waits for that.
  bool interactive = false;  ///< Ends at its deadline, moments after it came, if it does not run by then.
  bool require_feasible = false;  ///< Refused what no node could run; so are its changes. Since level 10.

  OrderKey order() const { return {.key = order_key, .job = id}; }
  bool is_queued() const {
    return state == JobState::kPending && !not_before.valid() && !held && !promised && !parked &&
           unmet == 0 && array != id;
  }
  bool is_array() const { return array == id; }
  bool is_element() const { return array.valid() && array != id; }

  /// Returns nothing if it never was, or if an earlier version wrote a sentence.
  std::optional<MoveRecord> move_record() const;
  void set_move_record(const MoveRecord& record);

  /// Its timeline after its submission; since feature level 7.
  JobHistory timeline() const { return unpack_history(history, submitted_at); }
  void note(const JobHistoryEntry& entry) { history = with_entry(history, submitted_at, entry); }

  AttemptUsage last_usage() const { return unpack_usage(usage.view()); }

  std::vector<JobDependency> dependency_list() const;
  /// Sets `unmet` too.
  void set_dependencies(const std::vector<JobDependency>& list);

  /// Returns the node of an attempt's first member; invalid if not known (any more).
  NodeId node_of_attempt(uint32_t attempt) const;
  /// Returns the node of a member of the last attempt; invalid if there is none.
  NodeId node_of_member(uint32_t member) const;
  /// Remembers where the members of a gang's attempt are; of one member that is `node` alone.
  void set_member_nodes(const std::vector<NodeId>& nodes);
  /// The last attempt's node becomes a past one. Before the next attempt is written here.
  void remember_node();

  /// All but the class, which the snapshot stores apart.
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    RareFields extras(self.extras);
    visit(1, "id", self.id);
    visit(2, "tenant", self.tenant);
    visit(3, "spec", self.spec);
    visit(4, "order_key", self.order_key);
    visit(5, "submitted_at", self.submitted_at);
    visit(6, "scheduled_at", self.scheduled_at);
    visit(7, "started_at", self.started_at);
    visit(8, "ended_at", self.ended_at);
    visit(9, "not_before", self.not_before);
    visit(10, "max_runtime", self.max_runtime);
    visit(11, "exit_code_retries", self.retry.exit_code_retries);
    visit(12, "system_retries", self.retry.system_retries);
    visit(13, "overlap_allowed", self.retry.overlap_allowed);
    visit(14, "kill_after_lost_contact", self.retry.kill_after_lost_contact);
    visit(15, "node", self.node);
    visit(16, "device_mask", self.device_mask);
    visit(18, "priority", self.priority);
    visit(19, "attempt_count", self.attempt_count);
    visit(20, "exit_failures", self.exit_failures);
    visit(21, "system_failures", self.system_failures);
    visit(22, "exit_code", self.exit_code);
    visit(23, "signal", self.signal);
    visit(24, "state", self.state);
    visit(25, "reason", self.reason);
    visit(26, "last_cause", self.last_cause);
    visit(27, "cancel_requested", self.cancel_requested);
    visit(28, "held", self.held);
    visit(29, "node_faults", self.node_faults);
    visit(30, "runtime_changed", self.runtime_changed);
    visit(31, "last_detail", extras->last_detail);
    visit(32, "past_nodes", extras->past_nodes);
    visit(33, "image_digest", extras->image_digest);
    visit(34, "retry_causes", self.retry.causes);
    visit(35, "retry_exit_codes", self.retry.exit_codes);
    visit(36, "unmet", self.unmet);
    visit(37, "on_parent_failure", self.on_parent_failure);
    visit(38, "deadline", self.deadline);
    visit(39, "dependencies", self.dependencies);
    visit(40, "array", self.array);
    visit(41, "ever_started", self.ever_started);
    visit(50, "attained_gpu_ms", self.attained_gpu_ms);
    visit(51, "preempted_at", extras->preempted_at);
    visit(52, "saved_at", extras->saved_at);
    visit(53, "preempt_count", extras->preempt_count);
    visit(54, "preemption_mode", self.preemption_mode);
    visit(55, "preemption_exempt", self.preemption_exempt);
    visit(56, "promised", self.promised);
    visit(57, "parked", self.parked);
    visit(80, "interactive", self.interactive);
    visit(90, "elastic_members", self.elastic_members);
    visit(91, "member_nodes", extras->member_nodes);
    visit(92, "bears_loss", self.retry.tolerates_node_loss);
    visit(100, "watch", extras->watch);
    visit(101, "watch_since", extras->watch_since);
    visit(102, "watch_detail", extras->watch_detail);
    visit(110, "moved_at", extras->moved_at);
    visit(111, "move_detail", extras->move_detail);
    visit(120, "history", self.history);
    visit(121, "usage", self.usage);
    visit(122, "submitted_by", self.submitted_by);
    visit(123, "owner", self.owner);
    visit(130, "require_feasible", self.require_feasible);
    visit(131, "given_gpu_memory_mb", self.given_gpu_memory_mb);
    visit(132, "preempt_grace_ms", self.preempt_grace_ms);
  }
};

static_assert(sizeof(Job) <= 264,
              "a million waiting jobs take this twice: is the new member one of JobExtras?");

/// With one aging factor for all, `priority + factor * wait` orders jobs like the constant
/// `priority - factor * submitted_at`. In priority points times milliseconds an hour, so that it is whole.
constexpr int64_t order_key_of(int64_t effective_priority, int64_t aging_per_hour, Time submitted_at) {
  constexpr int64_t kMsPerHour = 3'600'000;
  return effective_priority * kMsPerHour - aging_per_hour * submitted_at.ms();
}

/// Jobs that are alike for placement: one tenant, the same parts. The head of a class that cannot be placed
/// speaks for the whole class.
struct JobClass {
  TenantId tenant;
  std::vector<Part> parts;

  // Derived.
  OrderedJobs waiting;
  uint64_t references = 0;  ///< Jobs of any state; the slot is free when zero.
  uint64_t hash_key = 0;    ///< Key in the state's index.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "parts", self.parts);
  }
};

/// Members of a gang are prepared on their nodes first, and go when all of them are.
enum class MemberState : uint8_t { kPlaced = 1, kRunning, kEnded, kPrepared };
inline constexpr MemberState kMemberStateLast = MemberState::kPrepared;
/// Returns whether the member has started.
constexpr bool has_begun(MemberState state) {
  return state == MemberState::kRunning || state == MemberState::kEnded;
}

/// Resources that one member of an attempt holds on its node.
struct Member {
  NodeId node;
  uint64_t device_mask = 0;
  uint32_t part = 0;
  int32_t cpu_milli = 0;
  int64_t memory_mb = 0;
  MemberState state = MemberState::kPlaced;
  Outcome outcome;               ///< Outcome, once ended.
  int32_t gpu_milli = 0;         ///< Thousandths of its device; 0: whole devices.
  int64_t gpu_share_mb = 0;      ///< Memory of the share.
  bool exclusive = false;        ///< No other job runs on the node meanwhile.
  std::string mig_profile = {};  ///< MIG profile, if the share is a slice.
  int32_t mig_start = 0;         ///< Slot of the device's memory at which the slice begins.
  bool lost_tolerated = false;   ///< Lost with its node, and the gang continued without it.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device_mask", self.device_mask);
    visit(3, "part", self.part);
    visit(4, "cpu_milli", self.cpu_milli);
    visit(5, "memory_mb", self.memory_mb);
    visit(6, "state", self.state);
    visit(7, "outcome", self.outcome);
    visit(8, "gpu_milli", self.gpu_milli);
    visit(9, "gpu_share_mb", self.gpu_share_mb);
    visit(30, "exclusive", self.exclusive);
    visit(31, "borne", self.lost_tolerated);
    visit(100, "mig_profile", self.mig_profile);
    visit(101, "mig_start", self.mig_start);
  }
};

/// Attempt to run a job, from its placement until its last member has ended.
struct Attempt {
  JobId job;
  uint32_t number = 0;
  Time placed_at;
  Time started_at;  ///< Time at which its last member started.
  StopReason stop = StopReason::kNone;
  bool abandoned = false;  ///< The job went on without it; it still holds what it holds.
  std::vector<Member> members;
  /// Gangs only: index of the first member that failed.
  std::optional<uint32_t> first_failed;

  // Derived: how many of its members were never prepared, have not begun, and have not ended.
  uint32_t unprepared = 0;
  uint32_t unbegun = 0;
  uint32_t going = 0;

  /// Counts its members, of an attempt that is made or read.
  void count_members();
  /// Resources that its members used, once they have ended.
  AttemptUsage usage() const;
  /// Changes a member's state with the counts.
  void move_member(uint32_t member, MemberState to);
  bool is_gang() const { return members.size() > 1; }
  /// Every member of a gang was prepared, and nothing ends it: they begin together. Some may run by then, or
  /// be done.
  bool may_go() const;
  AttemptKey key(uint32_t member = 0) const { return {.job = job, .attempt = number, .member = member}; }
  /// Whether a word about an attempt of this number that was placed at `at` is about this one. Numbers are
  /// given again after the scheduler's data was restored from an older copy; without a time it is believed.
  bool was_placed(Time at) const { return !at.valid() || at == placed_at; }
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "number", self.number);
    visit(4, "placed_at", self.placed_at);
    visit(5, "started_at", self.started_at);
    visit(6, "stop", self.stop);
    visit(7, "abandoned", self.abandoned);
    visit(8, "members", self.members);
    visit(90, "first_failed", self.first_failed);
  }
};

/// An attempt that is ended for another job.
struct Preemption {
  JobId job;
  uint32_t attempt = 0;

  friend bool operator==(const Preemption&, const Preemption&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
  }
};

/// Resources kept for a job for which others are being ended: it starts there, and nobody else does. Its
/// devices are named in `Device::promised_to`; its CPU and memory, and its share of its tenant's quota, count
/// as used.
///
/// A promise to a job that is moved (`moves`) is kept while it still runs elsewhere: the job is in line as
/// any other as soon as it waits, and nothing counts for its tenant until it starts.
struct Promise {
  JobId job;
  TenantId tenant;
  Time since;
  std::vector<Member> members;  ///< Resources of each member; state and outcome are not used yet.
  std::vector<Preemption> victims;
  Amount amount;          ///< Amount charged to its tenant's quota.
  bool reclaims = false;  ///< Whether it reclaims its tenant's guarantee.
  Time asked_at;  ///< Given when a guarantee or a pool's share is kept by it: since when it is asked for.
  WorkClass work = WorkClass::kUnset;
  bool moves = false;     ///< The job is moved there.
  uint32_t attempt = 0;   ///< Number of the attempt that ends first; see `moves`.
  JobId moved_for;        ///< Job that can start by the move.
  std::string moved_by;   ///< Operator who requested the move, or the moves that let the job start.
  std::string moved_why;  ///< Reason of the move, in the operator's words.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "tenant", self.tenant);
    visit(3, "since", self.since);
    visit(4, "members", self.members);
    visit(5, "victims", self.victims);
    visit(6, "amount", self.amount);
    visit(60, "reclaims", self.reclaims);
    visit(61, "asked_at", self.asked_at);
    visit(62, "work", self.work);
    visit(70, "moves", self.moves);
    visit(71, "attempt", self.attempt);
    visit(72, "moved_for", self.moved_for);
    visit(73, "moved_by", self.moved_by);
    visit(74, "moved_why", self.moved_why);
  }
};

/// Answer to a write that carried a request key.
struct RememberedRequest {
  TenantId tenant;
  std::string key;
  uint64_t body_digest = 0;
  uint64_t first_id = 0;
  uint32_t id_count = 0;
  Time at;
  uint32_t owner = 0;  ///< Owner who asked, by its number in State::owners; 0: before feature level 9.

  uint64_t next = 0;  ///< Derived: the number of its tenant's next one; 0: it is the newest.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "key", self.key);
    visit(3, "body_digest", self.body_digest);
    visit(4, "first_id", self.first_id);
    visit(5, "id_count", self.id_count);
    visit(6, "at", self.at);
    visit(7, "owner", self.owner);
  }
};

}  // namespace gpusched
