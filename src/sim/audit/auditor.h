#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "engine/engine.h"
#include "engine/policy/task_order.h"
#include "gpusched/v1/node.pb.h"
#include "host/core/interfaces.h"
#include "journal/journal.h"
#include "model/state.h"
#include "node/ports/ports.h"
#include "sim/audit/refusals.h"
#include "sim/schedule/schedule.h"

namespace gpusched::sim {

/// As the auditor's findings name them.
inline std::string name_of(JobId job) { return "job " + std::to_string(job.value); }
inline std::string name_of(const AttemptKey& key) { return "attempt " + to_string(key); }

/// Holds the system to its promises. It keeps books of its own, as plainly as it can: of what became durable
/// (events, one by one), of what the fake world's processes and devices really did, of what nodes were
/// ordered and told, and of what clients were answered. It never asks the state's indexes. The first broken
/// promise is kept as a sentence; everything after it is ignored.
class Auditor {
 public:
  explicit Auditor(const Schedule& schedule) : schedule_(schedule) {}

  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  void fail(const std::string& sentence);

  // The world. Devices are named by uuid.
  void on_process_started(const AttemptKey& key, const std::vector<std::string>& devices);
  /// It is dead for certain; `outcome` is what its shim, if any, saw.
  void on_process_ended(const AttemptKey& key, const Outcome& outcome);
  /// Its agent ended it, since its shim had not carried out a stop or a limit.
  void on_process_forced(const AttemptKey& key);
  void on_start_failed(const AttemptKey& key);
  /// The machine refused it, before anything of it ran.
  void on_start_refused(const AttemptKey& key);
  /// This outcome is on the node's disk for good.
  void on_outcome_kept(const AttemptKey& key, EndCause cause);
  /// The disk that had it is another one's copy now.
  void on_outcome_overwritten(const AttemptKey& key) { truths_[key].outcome_kept = false; }
  /// Something is left on the device after its job's end, or not any more.
  void on_device_busy(const std::string& uuid, bool busy);
  /// A MIG slice that begins at this slot is there, or no longer;
  void on_slice(const std::string& uuid, int32_t start, bool there);
  /// its driver did not make it;
  void on_slice_refused(const std::string& uuid, int32_t start) { refused_slices_.insert({uuid, start}); }
  /// and something is left in it, or no longer.
  void on_slice_busy(const std::string& uuid, int32_t start, bool busy);
  /// The device is hotter than new work may find it.
  void on_device_hot(const std::string& uuid) { ever_hot_.insert(uuid); }
  /// Sets the grace of stopped jobs: nobody is ended for a job that must have started by then.
  void expect_grace(Duration grace, Duration most) {
    grace_ = grace;
    grace_max_ = most;
  }
  /// Tasks may pass each other within the order's largest delay. Null: no job is one.
  void expect_tasks(std::shared_ptr<const policy::TaskOrder> tasks) { tasks_ = std::move(tasks); }
  /// The device is gone, or shows a fault that keeps new work from it.
  void on_device_fault(const std::string& uuid) { ever_faulty_.insert(uuid); }

  // The journal.
  void on_durable(const JournalRecord& record);
  void on_recovered(const State& state, uint64_t position);

  // The wire, at the scheduler's end. `link` names one stream.
  void on_sent(uint64_t link, const std::string& node, uint64_t position,
               const v1::SchedulerMessage& message);
  void on_received(uint64_t link, const v1::AgentMessage& message);
  void on_link_gone(uint64_t link) { links_.erase(link); }

  // Clients. `submission` is the client's own number; its jobs' specifications carry their tags.
  void on_submit_try(uint64_t submission, const std::vector<std::string>& tags, const JobOwner& owner);
  void on_submit_accepted(uint64_t submission, const Decided& decided);
  /// The world failed it: nothing of it was taken.
  void on_submit_refused(uint64_t submission, std::string_view why);
  /// The engine said no.
  void on_submit_rejected(uint64_t submission, std::string_view why);
  void on_revoke_accepted(KeyId key);
  /// A client read the key; null: there is none.
  void on_key_told(KeyId key, const AccessKey* told);
  void on_node_revoke_accepted(NodeIdentityId identity);
  /// A client read the identity of the node; null: there is none.
  void on_node_identity_told(const std::string& node, const NodeIdentity* told);
  /// The newest identity of the node by the books; none: there is none.
  NodeIdentityId identity_of(const std::string& node) const;
  void on_cancel_accepted(JobId job, uint64_t sequence);
  void on_answer(uint64_t sequence);
  /// A client read the job.
  void on_job_told(JobId job, const Job* told);

  // After each step.
  void check_digest(const char* whose, const State& state, uint64_t position);
  /// Compares everything; for a state at the newest durable position.
  /// The state's snapshot is read as the state.
  void check_snapshot(const char* whose, const State& state);
  void check_all(const char* whose, const State& state);
  /// Replays the whole journal from nothing.
  void check_replay();
  /// Replays the journal as a program would that decides otherwise from a drawn record on: recovery must
  /// notice it at the record behind.
  void check_otherwise(Prng& prng);

  // For whoever waits for the end.
  uint64_t position() const { return position_; }
  std::vector<JobId> unfinished() const;
  /// Durable commands; those that only let time pass count apart.
  uint64_t command_count() const { return command_count_; }
  uint64_t advance_count() const { return advance_count_; }
  std::size_t job_count() const { return jobs_.size(); }
  std::size_t attempt_count() const { return attempts_.size(); }
  bool device_in_use(const std::string& uuid) const;
  /// The state as replayed: for words about a run that did not end.
  const State& replica() const { return replica_; }

 private:
  struct ReferenceJob {
    std::string tag;
    JobOwner owner;
    TenantId tenant;
    std::vector<Part> parts;  ///< An elastic job that is placed has as many members here as it got.
    int32_t last_least = 0;   ///< Fewest members that the last part must have.
    int32_t last_most = 0;    ///< Most members that the last part may have.
    RetryPolicy retry;
    Duration max_runtime;
    Duration longest;  ///< Longest run expected before its limit was changed.
    Duration grace;    ///< Requested, as far as the rules know it.
    uint32_t attempts = 0;
    bool final = false;
    bool forgotten = false;
    bool backs_off = false;
    bool held = false;
    bool cancel_asked = false;
    bool cancel_answered = false;
    bool exempt = false;
    PreemptionMode preemption_mode = PreemptionMode::kRequeue;
    bool promised = false;
    uint32_t preempt_count = 0;
    JobState state = JobState::kPending;
    JobReason reason = JobReason::kSubmitted;
    Outcome outcome;
    int32_t exit_requeues = 0;
    int32_t system_requeues = 0;
    Time begin_at;
    Time deadline;
    std::vector<std::pair<JobId, DependencyKind>> parents;
    std::set<JobId> unmet;  ///< Those of `parents` that are not met.
    bool ever_started = false;
    JobId array;                ///< Array of an element; its own id: an array.
    int64_t element_count = 0;  ///< For an array; else 0.
    int64_t elements_at_once = 0;
    int64_t elements_added = 0;
    bool parked = false;       ///< An element whose turn has not come.
    bool closed = false;       ///< No more of its elements become jobs.
    bool out_of_time = false;  ///< Closed by its deadline.
    Refusals refusals = {};    ///< Nodes that did not start it.
  };
  struct ReferenceAttempt {
    std::vector<Member> members;
    bool live = true;
    bool abandoned = false;
    bool requeue_asked = false;
    bool timed_out = false;  ///< Stopped for its runtime, however it ended then.
    bool preempted = false;
    int64_t given_mb = 0;  ///< Memory of GPUs for which it names no size.
    uint64_t over_at = 0;  ///< Journal position of its end.
    Outcome outcome;
    std::set<uint32_t> prepared = {};     ///< Gang members that were prepared, ever.
    std::optional<uint32_t> failed = {};  ///< The first member that ended badly.
  };
  struct ReferenceShare {
    int64_t milli = 0;
    int64_t memory_mb = 0;
    bool draining = false;
    std::string profile;  ///< Profile of a MIG slice.
    int32_t start = 0;    ///< First slot of memory of a MIG slice.
  };
  struct ReferenceDevice {
    std::string uuid;
    int64_t memory_mb = 0;
    std::string model;
    DeviceState state = DeviceState::kFree;
    DeviceCondition condition = DeviceCondition::kOk;
    bool barred = false;
    bool hot = false;
    bool faulty = false;
    uint32_t generation = 0;
    AttemptKey held_by;
    JobId promised_to;
    std::map<AttemptKey, ReferenceShare> shares;
    bool mig = false;       ///< In MIG mode.
    bool mig_next = false;  ///< It will be in MIG mode as soon as it is free.
  };
  struct ReferenceNode {
    std::string name;
    NodeState state = NodeState::kReady;
    Availability availability = Availability::kInService;
    bool drained_by_itself = false;  ///< Nobody asked for it.
    bool removed = false;            ///< Nobody knows it any more.
    Time silent_at;                  ///< When it became unreachable.
    int64_t cpu_milli = 0;
    int64_t memory_mb = 0;
    std::vector<ReferenceDevice> devices;
    bool external = false;  ///< It registered as external.
    std::string rack;       ///< By its labels; empty: it is in none.
    std::map<std::string, std::string> agent_labels;
    std::map<std::string, std::string> labels;  ///< An operator's.
    std::vector<int64_t> links;                 ///< Links as the agent gave them.
    std::vector<std::string> linked;            ///< Devices that the links are of.
  };
  struct ReferenceTenant {
    TenantId parent;
    Limits limits;
    Amount guarantee;
    Duration window;  ///< Window of its GPU hours; zero: they have no limit.
    int64_t gpu_ms_max = 0;
    Time window_since;  ///< Begin of the present window.
  };
  /// GPUs that a job held, or that were kept for it.
  struct Hold {
    TenantId tenant;
    int64_t milli = 0;  ///< Thousandths of GPUs.
    Time from;
    Time to;
  };
  struct Truth {
    std::vector<std::string> devices;
    bool alive = false;
    bool started = false;
    bool outcome_kept = false;
    bool forced = false;
    Time started_at;
    Outcome outcome;
  };
  struct Submission {
    std::vector<std::string> tags;
    JobOwner owner;
    uint64_t first_id = 0;
    int open_tries = 0;
  };
  struct Link {
    std::vector<std::string> devices;  ///< By the agent's index.
    std::string node;
    std::map<uint64_t, v1::Report> reports;
  };
  using JobAttempt = std::pair<JobId, uint32_t>;

  /// Free room of a node, for jobs that want devices of one kind.
  struct Room {
    int64_t devices = 0;
    int64_t cpu_milli = 0;
    int64_t memory_mb = 0;
    void add(const Room& other) {
      devices += other.devices;
      cpu_milli += other.cpu_milli;
      memory_mb += other.memory_mb;
    }
  };
  /// The job that stands first of all in line and waits for a limit alone.
  struct First {
    JobId job;
    TenantId tenant;                     ///< Tenant whose limit it is, unless `is_pool`.
    bool is_pool = false;                ///< The limit is a pool's.
    WorkClass work = WorkClass::kUnset;  ///< Work of that pool.
    uint64_t since = 0;                  ///< The command that made it so.
  };

  void on_command(const Command& command, const Events& events);
  static bool gives_back(const Event& event);
  void begin_plan(const Command& command, const Events& events);
  void end_plan(const Command& command, const Events& events);
  static bool is_alike(const ReferenceDevice& one, const ReferenceDevice& like);
  Room given_by(const Member& member, NodeId node, const ReferenceDevice& like);
  Room free_on(NodeId id, const ReferenceDevice& like);
  void check_victims_needed(const Promise& promise);
  int64_t idle_of(TenantId tenant) const;
  int64_t held_by_work(bool online) const;
  int64_t gpus_in_service() const;
  void check_growth(const AttemptPlaced& event, const ReferenceJob& job);
  bool keeps_limits() const;
  std::optional<Amount> used_below(const First& limit) const;
  bool is_below(const First& limit, JobId id) const;
  int64_t limit_of(const First& limit, Resource resource) const;
  bool exceeds(const First& limit, const Amount& used, const Amount& wanted) const;
  std::optional<First> blocked_below(JobId id) const;
  Time back_by(Time now) const;
  bool has_room(const ReferenceJob& job);
  void note_first();
  void check_first_kept(const AttemptPlaced& event, const ReferenceJob& job);
  static Duration run_of(const ReferenceJob& job);
  void note_line(const Event& event, Time at);
  OrderKey last_place_of(const Job& job) const;
  bool must_go_first(const Job& waiting, const Job& placed, Time at) const;
  void check_overtaking(const AttemptPlaced& event);
  // One for each event: a new one does not compile until it is said here what the books make of it.
  void on(const JobSubmitted& event);
  void on(const ElementAdded& event);
  void on(const ElementUnparked& event);
  void on(const ArrayClosed& event);
  void on(const DependencySettled& event);
  void on(const JobUpdated& event);
  void on(const JobHoldChanged& event);
  void on(const BackoffEnded& event);
  void on(const JobFinished& event);
  void on(const JobRequeued& event);
  void on(const JobsForgotten& event);
  void on(const AttemptPlaced& event);
  void on(const MemberPrepared& event);
  void on(const MemberStarted& event);
  void on(const StopRequested& event);
  void on(const MemberEnded& event);
  void on(const AttemptAbandoned& event);
  void on(const DevicesPromised& event);
  void on(const PromiseEnded& event);
  void on(const NodeRegistered& event);
  void on(const NodeRemoved& event);
  void on(const NodeLabeled& event);
  void on(const NodeStateChanged& event);
  void on(const NodeAvailabilityChanged& event);
  void on(const NodeSuspected& event);
  void on(const BookingMade& event);
  void check_ends_before_bookings(const AttemptPlaced& event, const ReferenceJob& job);
  void on(const BookingBegan& event);
  void on(const BookingEnded& event);
  void on(const DeviceFreed& event);
  void on(const ShareFreed& event);
  void on(const DeviceQuarantined& event);
  void on(const DeviceOccupied& event);
  void on(const DeviceConditionChanged& event);
  void on(const DeviceBarred& event);
  void on(const DeviceHeatChanged& event);
  void on(const DeviceFaultChanged& event);
  void on(const TenantCreated& event);
  void on(const TenantUpdated& event);
  void on(const TenantsForgotten& event);
  void on(const TenantDeleted& event);
  void on(const KeyCreated& event);
  void on(const KeyRevoked& event);
  void on(const RoleBound& event);
  void on(const KeyForgotten& event);
  void on(const PersonRecorded& event);
  void on(const NodeTicketCreated& event);
  void on(const NodeTicketForgotten& event);
  void on(const NodeAdmitted& event);
  void on(const NodeRenewed& event);
  void on(const NodeRevoked& event);
  void on(const Configured&) {}
  void on(const JobAsked&) {}
  void on(const Admitted&) {}
  void on(const RequestRemembered&) {}
  void on(const RequestForgotten&) {}
  void on(const OldestRequestForgotten&) {}
  void on(const JobCheckpointed&) {}
  void on(const WatchdogFindingChanged&) {}
  void on(const NodeFailureNoted&) {}
  void on(const TimeSkipped&) {}
  void on(const TimerDropped&) {}
  bool is_of(const Promise& promise, const ReferenceJob& job);
  void book_move(const Promise& promise, const ReferenceJob& job);
  void note_on_its_way(JobId id, Time at);
  int64_t given_mb(const ReferenceJob& job, const std::vector<Member>& members);
  void give_back_slot(ReferenceDevice& gone, const std::string& uuid);
  void check_turn(JobId element, const ReferenceJob& array);
  void book_submission(const JobSubmitted& event, ReferenceJob& job);
  void book_flow(const JobSubmitted& event, ReferenceJob& job);
  bool fulfils(JobId parent, DependencyKind kind) const;
  bool has_failed_parent(const ReferenceJob& job) const;
  void check_may_start(JobId id, const ReferenceJob& job, Time at);
  bool check_flow_end(const JobFinished& event, const ReferenceJob& job);
  void check_gang(const AttemptPlaced& event, ReferenceJob& job);
  static void take_parts(ReferenceJob& job, const std::vector<Part>& parts);
  bool may_drain_another() const;
  bool has_share(const AttemptKey& key) const;
  void check_share(JobId job, const Part& part, const ReferenceDevice& reference, const Member& member);
  bool lacked_its_slice(const AttemptKey& key);
  void check_slice(const std::string& what, const Part& part, const ReferenceDevice& reference,
                   const Member& member);
  void check_wishes(JobId job, const Part& part, const Member& member);
  void check_lonely(JobId job, const Part& part, const Member& member);
  void end_share(const AttemptKey& key, ReferenceDevice& shared, bool devices_free);
  void drop_share(const AttemptKey& key, ReferenceDevice& shared);
  void free_device(ReferenceDevice& freed);
  void check_excuse(const PromiseEnded& event, const Promise& promise);
  void check_not_taken(uint64_t submission, std::string_view why);
  void note_outcome(ReferenceAttempt& attempt, const MemberEnded& event);
  void check_borne(const ReferenceAttempt& attempt, const MemberEnded& event);
  void check_truth_of_end(const AttemptKey& key, const Outcome& outcome);
  static void take_quota(ReferenceTenant& tenant, const UpdateTenant& change, Time at);
  void begin_hold(JobId job, uint32_t attempt, Time at);
  void end_hold(JobId job, uint32_t attempt, Time at);
  /// GPU-milliseconds, and how much less the scheduler may count, which rounds shares down at each change.
  std::pair<int64_t, int64_t> gpu_ms_of(TenantId tenant, Time now) const;
  void check_gpu_time(JobId job, const ReferenceJob& entry, Time at);
  void check_reclaim(const Promise& promise);
  void check_quota(JobId job, const ReferenceJob& entry);
  void check_member_placement(JobId job, const ReferenceJob& entry, const Member& member);
  void check_order(const std::string& node, uint64_t position, const v1::StartAttempt& order);
  void check_acknowledged(const Link& link, const v1::Report& report);
  void check_jobs(const char* whose, const State& state);
  void check_nodes(const char* whose, const State& state);
  void check_tenants(const char* whose, const State& state);
  void check_keys(const char* whose, const State& state);
  void check_people(const char* whose, const State& state);
  void check_node_identities(const char* whose, const State& state);
  Amount usage_of(TenantId tenant) const;
  bool is_in(TenantId tenant, TenantId ancestor) const;
  const ReferenceNode* node_named(const std::string& name) const;
  ReferenceDevice* device(NodeId node, uint32_t index);

  const Schedule& schedule_;
  std::string failure_;
  Duration grace_;      ///< See expect_grace.
  Duration grace_max_;  ///< At most so much of what jobs ask for.
  std::shared_ptr<const policy::TaskOrder> tasks_;

  // Facts that are durable.
  std::vector<std::string> payloads_;
  uint64_t position_ = 0;
  uint64_t command_count_ = 0;
  uint64_t advance_count_ = 0;
  State replica_;
  bool by_operator_ = false;  ///< The command at hand is an operator's.
  JobId cancelling_;          ///< By the command at hand.
  std::map<JobId, ReferenceJob> jobs_;
  std::map<std::string, JobId> job_by_tag_;
  std::map<KeyId, AccessKey> keys_;
  std::set<KeyId> revoked_keys_;  ///< For ever, whoever forgets them.
  std::map<PersonId, Person> people_;
  std::map<NodeTicketId, NodeTicket> node_tickets_;
  std::map<std::string, NodeIdentity> node_identities_;
  std::set<NodeIdentityId> revoked_identities_;  ///< Likewise, and whatever took their place.
  std::set<NodeTicketId> used_tickets_;
  std::map<JobAttempt, ReferenceAttempt> attempts_;
  std::set<JobAttempt> live_;
  std::map<BookingId, std::vector<NodeId>> bookings_;
  std::map<NodeId, BookingId> booked_;      ///< Nodes on which a booking is.
  std::map<BookingId, Time> booked_since_;  ///< When it was made.
  std::map<NodeId, ReferenceNode> nodes_;
  std::set<NodeId> heard_;            ///< Registered since the scheduler that runs began.
  std::map<JobAttempt, Hold> holds_;  ///< Attempt 0: what is promised.
  std::vector<Hold> past_holds_;
  bool gpu_time_known_ = true;
  std::map<TenantId, ReferenceTenant> tenants_ = {{kDefaultTenant, {}}};
  std::deque<JobId> finished_;
  std::map<JobId, Time> line_since_;    ///< When something last said that it waits, and how.
  std::set<JobId> planned_;             ///< Jobs that the command at hand places, or meant to.
  std::map<JobId, uint64_t> lined_at_;  ///< The command that said so.
  const CommitPlan* plan_ = nullptr;    ///< The command at hand, where its plan can be judged.
  uint64_t gave_back_at_ = 0;           ///< The newest command, other than plans, that may have made room.
  First first_;
  std::map<JobId, Promise> promises_;
  std::set<JobAttempt> unclaimed_;      ///< Victims whose preemptor the command at hand has not named yet.
  std::map<JobId, Promise> fulfilled_;  ///< Promises that ended because their job starts, in this command.

  // Facts of what really happened.
  std::map<AttemptKey, Truth> truths_;
  std::map<std::string, std::set<AttemptKey>> users_;  ///< Live ones, by device.
  std::set<std::string> busy_;
  std::set<std::pair<std::string, int32_t>> slices_;          ///< MIG slices that are there.
  std::set<std::pair<std::string, int32_t>> refused_slices_;  ///< Slices that were once not made.
  std::set<std::pair<std::string, int32_t>> busy_slices_;     ///< Slices in which something is left.
  std::set<std::string> ever_hot_;                            ///< Devices that really were hot once.
  std::set<std::string> ever_faulty_;

  std::map<uint64_t, Link> links_;
  std::set<AttemptKey> ordered_;
  std::map<uint64_t, Submission> submissions_;
  std::map<std::string, uint64_t> submission_of_tag_;
};

}  // namespace gpusched::sim
