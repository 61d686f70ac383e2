#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/time.h"
#include "model/booking.h"
#include "model/cluster.h"
#include "model/identity/key_table.h"
#include "model/identity/node_identity_table.h"
#include "model/identity/owner_table.h"
#include "model/identity/person.h"
#include "model/index/claim_index.h"
#include "model/job.h"
#include "model/job_array.h"
#include "model/job_table.h"

namespace gpusched {

/// Event that falls due at a time, for State::timers.
enum class TimerKind : uint8_t {
  kBackoffOver = 1,  ///< id: job
  kRuntimeOver,      ///< id: job, extra: attempt
  kNodeLost,         ///< id: node
  kContactLost,      ///< id: job, extra: attempt
  kDeadline,         ///< id: job
  kPromiseOver,      ///< id: job
  kBooking,          ///< id: booking
  kAvoidOver,        ///< id: job
};
/// A job that waits for another one.
struct Dependent {
  JobId parent;
  JobId child;

  friend auto operator<=>(const Dependent&, const Dependent&) = default;
};
struct Timer {
  Time due;
  TimerKind kind = TimerKind::kBackoffOver;
  uint64_t id = 0;
  uint32_t extra = 0;

  friend auto operator<=>(const Timer&, const Timer&) = default;
};

/// A user of a tenant.
using SubmitterKey = std::pair<TenantId, std::string>;

/// GPUs that placed and promised jobs of one kind of work hold, and those of them that are being ended for
/// others.
struct PoolUse {
  int64_t milli = 0;  ///< Thousandths of GPUs.
  int64_t stopping_gpu_milli = 0;
};

/// Everything that commands can change, with the indexes that keep every operation O(log n). Changed by
/// `evolve` (engine) alone; the members below "helpers" keep indexes and counts true. Pure; not thread-safe.
struct State {
  State();
  State(State&&) noexcept = default;
  State& operator=(State&&) noexcept = default;
  /// A copy of its own, for the observer; specifications are shared.
  State clone() const;
  /// The same without what is over: only jobs that are not final, those that others still have to be told
  /// about and those in `also`, and no remembered requests. Later changes act as in this one.
  State clone_unfinished(const std::vector<JobId>& also = {}) const;

  EngineConfig config;
  Stamp last;     ///< Sequence number and time of the newest command.
  Digest digest;  ///< Running hash of all events.

  std::map<TenantId, Tenant> tenants;
  std::vector<DeviceClass> device_classes;
  std::vector<Node> nodes;             ///< By slot; a removed one stays, empty, until another takes it.
  uint64_t device_classes_reused = 0;  ///< Number of times that a number was reused; not in snapshots.
  OwnerTable owners;                   ///< Owners of jobs and of remembered requests.
  KeyTable keys;                       ///< Credentials that callers were given.
  PersonTable people;                  ///< Those for whom keys may be made.
  NodeIdentityTable node_identities;   ///< Machines that may be nodes, by certificate.
  JobTable jobs;
  std::map<AttemptKey, Attempt> attempts;  ///< Attempts that hold resources; the key has member 0.
  std::map<JobId, Promise> promises;
  std::map<BookingId, Booking> bookings;
  std::map<SubmitterKey, Submitter> submitters;    ///< Users who spent tokens lately.
  std::map<uint64_t, RememberedRequest> requests;  ///< Keyed by the number of the command: oldest first.
  std::deque<JobId> finished;                      ///< Final jobs, oldest end first.

  // Indexes.
  std::vector<JobClass> classes;  ///< Indexed by JobClass number; slots of unused classes are reused.
  OrderedJobs line;               ///< Every job that waits in line, of all classes.
  std::set<Timer> timers;
  std::set<Dependent> dependents;  ///< Dependencies that are open, by parent.
  std::map<JobId, JobArray> arrays;
  std::set<JobId> due_arrays;  ///< Arrays that have an element to expand now, or are over.
  int64_t array_waiting = 0;   ///< Contribution of unfinished arrays to the pending jobs: see waiting_count.
  std::map<TenantId, int64_t> waiting_below;  ///< Pending jobs of the children of tenants that have some.
  std::set<JobId> settling;  ///< Parents that ended and whose dependents have not been told yet.
  int64_t state_counts[kJobStateCount] = {};
  int64_t spec_bytes = 0;             ///< Bytes of all jobs' specifications; a shared one counts once.
  int64_t unfinished_spec_bytes = 0;  ///< Bytes of unfinished jobs' specifications.
  std::map<TenantId, int64_t>
      unfinished_spec_bytes_of;  ///< The same by the tenant that answers for them: see spec_holder.
  PoolUse online;                ///< Usage by online work.
  PoolUse batch;                 ///< Usage by all other work.
  int64_t pending_backoff =
      0;  ///< Pending jobs that are not in line: they back off, are held or promised something.

  Duration skipped;   ///< Time in which nobody watched, as it counts for retention: see `expiry`.
  Time skipped_last;  ///< Time of the latest change of `skipped`.

  // Look-ups. Null when there is none.
  const Tenant* find_tenant(TenantId id) const {
    if (!id.valid()) return nullptr;  // Above the top of a tree: asked for at every step of a job's life.
    const auto it = tenant_by_id_.find(id.value);
    return it == tenant_by_id_.end() ? nullptr : it->second;
  }
  Tenant* find_tenant(TenantId id) {
    return const_cast<Tenant*>(static_cast<const State*>(this)->find_tenant(id));
  }
  /// The tenant of that name; of several the one that was created first.
  const Tenant* find_tenant_named(std::string_view name) const;
  /// The ids of all tenants of that name that are not deleted, in ascending order.
  std::span<const TenantId> tenants_named(std::string_view name) const;
  /// The tenant at the top of the tenant's tree; itself if it has no parent.
  TenantId root_of(TenantId id) const;
  const Node* find_node(NodeId id) const;
  Node* find_node(NodeId id);
  const Node* find_node_named(std::string_view name) const;
  /// Calls `look` with each node that has the device or the data folder, and perhaps with others.
  template <typename Look>
  void look_at_claimants(std::string_view uuid_or_instance, Look&& look) const {
    const std::optional<ClaimIndex::Claim> claim = claims_.find(uuid_or_instance);
    if (!claim) return;
    if (!claim->several) return look(nodes[claim->slot]);
    for (const Node& node : nodes) look(node);
  }
  const Attempt* find_attempt(JobId job, uint32_t number) const;
  Attempt* find_attempt(JobId job, uint32_t number);
  const Promise* find_promise(JobId job) const;
  const Submitter* find_submitter(TenantId tenant, const std::string& user) const;
  /// The request that is remembered for the tenant and the owner (its number in `owners`) by that key.
  const RememberedRequest* find_request(TenantId tenant, uint32_t owner, std::string_view key) const;
  const JobArray* find_array(JobId id) const;
  // Look-ups of what must be there: a missing one is a bug, and ends the process.
  const Tenant& tenant_at(TenantId id) const;
  Tenant& tenant_at(TenantId id);
  const Node& node_at(NodeId id) const;
  Node& node_at(NodeId id);
  const Job& job_at(JobId id) const;
  Job& job_at(JobId id);
  const Attempt& attempt_at(JobId job, uint32_t number) const;
  const JobArray& array_at(JobId id) const;
  const Booking& booking_at(BookingId id) const;
  /// The array of an element, whether that is a job yet or not.
  const JobArray* array_of_element(JobId element) const;
  /// Whether `job`, which is or was one, ended. An element that is not expanded yet did not.
  bool has_ended(JobId job) const;
  const PoolUse& pool_of(WorkClass work) const { return work == WorkClass::kOnline ? online : batch; }
  PoolUse& pool_of(WorkClass work) { return work == WorkClass::kOnline ? online : batch; }
  const JobClass& class_of(const Job& job) const { return classes[job.job_class]; }
  /// Returns what a placed job holds, as charged to its tenant; of another one what it had or will have.
  Amount held_by(const Job& job) const {
    Amount held = total_of(class_of(job).parts, job.elastic_members);
    held.gpu_memory_mb += job.given_gpu_memory_mb;
    return held;
  }
  /// The memory of the GPUs and shares that the members have and for which their parts name no size.
  int64_t given_gpu_memory(const std::vector<Part>& parts, std::span<const Member> members) const;

  int64_t count(JobState state) const { return state_counts[static_cast<std::size_t>(state)]; }
  /// Pending jobs; of an array not its own job but each element that is not expanded yet.
  int64_t waiting_count() const { return count(JobState::kPending) + array_waiting; }
  /// The same of one tenant and its children.
  int64_t waiting_count(const Tenant& tenant) const;
  /// The tenant that answers for the specifications of a tenant's jobs: the top of its tree; none for all
  /// tenants together that callers without a credential may make, however many they make.
  TenantId spec_holder(const Tenant& tenant) const {
    if (tenant.anonymous) return {};
    return tenant.parent.valid() ? root_of(tenant.id) : tenant.id;
  }
  /// Bytes that only this job's specification takes: 0 where another job has the same one.
  int64_t own_spec_bytes(const Job& job) const;
  /// Returns when the next timer, retention or expiry falls due; kNever if nothing does.
  Time next_due() const;
  /// Returns when the next key is forgotten; kNever if none is.
  Time next_key_due() const;
  /// When what is kept for `kept` from `since` on expires. For as long as something from before the last skip
  /// may be there, the skipped time does not count: a wall clock that jumped while no scheduler ran expires
  /// nothing.
  Time expiry(Time since, Duration kept) const;

  // Helpers of `evolve` and of snapshots.
  /// Finds or makes it; where there are as many as may be, in the place of one that no device is of.
  uint32_t intern_device_class(const DeviceClass& device_class);
  /// A bit for each that some device is of, or becomes.
  uint64_t used_device_classes() const;
  /// Adds a node in the first slot of a removed one, or in a new slot.
  Node& add_node(Node node);
  /// Must follow a change of its data folder or its devices.
  void note_claims(const Node& node);
  /// Adds a node in the next slot, as a snapshot has it.
  Node& restore_node(Node node);
  /// Removes a node to which only ended attempts refer.
  void remove_node(NodeId id);
  /// Returns the number of nodes, without removed ones.
  int64_t node_count() const {
    return static_cast<int64_t>(nodes.size()) - static_cast<int64_t>(removed_slots_.size());
  }
  Tenant& add_tenant(Tenant tenant);
  /// Finds or makes the class and counts one reference.
  uint32_t acquire_class(TenantId tenant, const std::vector<Part>& parts);
  /// Counts one more reference to a class that has one.
  void retain_class(uint32_t job_class);
  void release_class(uint32_t job_class);
  /// Its class and its owner count it as a reference already.
  Job& add_job(Job job);
  void remove_job(JobId id);
  /// The array of a job that was just added.
  void add_array(JobArray array);
  Job& add_element(JobId element, bool parked = false);
  /// The turn of a parked element has come.
  void unpark(Job& element);
  /// The element that is next to have its turn: parked or no job yet; none: those that are left are held.
  std::optional<JobId> next_element(const JobArray& array) const;
  /// Ends what is not expanded: as cancelled, or as failed at a deadline.
  void close_array(JobId id, JobReason reason);
  /// Counts what a snapshot does not carry: the elements that are jobs, and whether it has something to do.
  void restore_array(JobArray array);
  void rename_tenant(Tenant& tenant, const std::string& name);
  /// Marks the tenant as deleted: its name is nobody's, or that of the others that have it.
  void delete_tenant(Tenant& tenant);
  /// Whether callers without a credential may use it.
  void set_anonymous(Tenant& tenant, bool anonymous);
  void set_spec(Job& job, Blob spec);
  /// A deleted one to which nothing belongs any more (see is_forgettable), and what its users spent.
  void remove_tenant(TenantId id);
  /// Deleted, without jobs, ends that nodes remember, or remembered requests. It may have children.
  bool is_forgettable(const Tenant& tenant) const;
  /// Moves the job on to `to`, not back to pending, keeping line, counts and the finished list true.
  void move_job(Job& job, JobState to, JobReason reason);
  /// Back to pending, out of line until `not_before`.
  void requeue(Job& job, Time not_before);
  /// Indexes the open dependencies of a job that is pending. Once, after add_job.
  void index_dependencies(const Job& job);
  /// The verdict about each of the job's dependencies on `parent`.
  void resolve_dependency(Job& job, JobId parent, bool met);
  /// The first dependent of a parent that ended; nothing when all were told.
  const Dependent* next_settling() const;
  /// Sets or moves the deadline of a job that is not final; an invalid time ends it.
  void set_deadline(Job& job, Time deadline);
  /// Sets or moves when a pending job may begin; an invalid time: now.
  void set_begin(Job& job, Time begin);
  /// Puts a job whose back-off is over in line, unless it is held.
  void end_backoff(Job& job);
  /// Takes a pending job out of line until it is released, or ends that.
  void set_held(Job& job, bool held);
  /// Moves a job to another place in line.
  void reorder(Job& job, int64_t order_key);
  /// Changes what a pending job needs.
  void set_parts(Job& job, const std::vector<Part>& parts);
  Attempt& add_attempt(Attempt attempt);
  /// An attempt that is there and holds nothing any more.
  void remove_attempt(const AttemptKey& key);
  /// Adds the attempt's amount to, or takes it from, its tenant and all of that tenant's ancestors.
  /// Use counts until or from `at` on, which may be none where use is not counted.
  void charge(TenantId tenant, const Amount& amount, Time at, WorkClass work);
  void discharge(TenantId tenant, const Amount& amount, Time at, WorkClass work);
  /// Counts what the tenant has used until then, by the rules as they are; nothing for no time.
  void accrue_usage(Tenant& tenant, Time at) const;
  void hold_member(const Attempt& attempt, uint32_t member);
  /// CPU and memory come back at once; devices are the caller's.
  void release_member(const Attempt& attempt, uint32_t member);
  /// Keeps what it names for its job, and takes the job out of line.
  void add_promise(Promise promise);
  /// Releases what was kept; the job, if it still exists, is queued.
  void remove_promise(JobId job, Time at);
  /// Counts what a promise keeps (sign 1), or no longer (-1); its devices say so already.
  void count_promise(const Promise& promise, int64_t sign, Time at);
  /// The attempt of a job that is moved has ended: what it held stays its tenant's.
  void charge_move(const Job& job, Time at);
  const Booking* find_booking(BookingId id) const;
  const Booking* find_booking_named(std::string_view name) const;
  /// When a booking next begins on the node, of others than `own`, on which whoever asks runs: its further
  /// occurrences are the asker's, too. kNever: none does. `own` invalid: Node::booked_from.
  Time next_booking_of_others(const Node& node, BookingId own) const;
  /// Adds the booking, or puts it in place of what it was, with its timer and what its nodes know of it.
  void put_booking(Booking booking);
  void remove_booking(BookingId id);
  /// Puts down what a user spent. At most limits::kSubmittersMax are remembered: whoever's spending matters
  /// for the shortest time is forgotten first, and at once when it no longer does at `at`.
  void put_submitter(Submitter submitter, Time at);
  /// Forgets what users owe at rates that no longer hold; what they spent of the day stays.
  void refill_buckets();
  /// Its owner counts it as a reference already.
  void remember(RememberedRequest request);
  void forget_oldest_request();
  /// The tenant's oldest, which there is.
  void forget_request_of(TenantId tenant);
  /// Returns the tenant with the most remembered requests.
  TenantId most_remembered() const;
  /// Puts `job` down as whom the devices are promised to.
  void mark_promised(const Promise& promise, JobId job);
  static void refresh_free_mask(Node& node);
  uint32_t feature_bits_of(const std::vector<std::string>& features) const;

 private:
  void copy_all_but_jobs(State& copy) const;
  void refresh_booked(const std::vector<NodeId>& nodes_of_it);
  void refresh_array(JobId id);
  void count_array_waiting(const Job& array_job, int64_t change);
  void count_waiting(Tenant& tenant, int64_t change);
  /// The job's specification has so many more users among all jobs, and among those that are not final.
  void count_spec(const Job& job, Tenant& tenant, int64_t users, int64_t unfinished);
  void element_moved(const Job& job, JobState from);
  void element_removed(JobId array, bool is_array);
  void forget_dependent(const Dependent& dependent);
  static JobReason wait_reason(const Job& job);
  /// Puts a pending job where it waits, or takes it away from there, by what it says now.
  void enter_line(const Job& job);
  void leave_line(const Job& job);
  /// The job is being ended for another one (sign 1), or no longer (-1).
  void count_stopping(const Job& job, int64_t sign);
  Node& index_node(Node& node);
  static uint64_t request_hash(TenantId tenant, uint32_t owner, std::string_view key);

  /// Jobs that share one specification; of arrays and their elements alone, no others do.
  struct SpecUsers {
    int64_t all = 0;
    int64_t unfinished = 0;
  };
  boost::unordered_flat_map<const void*, SpecUsers> spec_users_;
  boost::unordered_flat_map<uint64_t, uint32_t> class_by_hash_;
  std::vector<uint32_t> free_classes_;
  std::map<std::string, uint32_t, std::less<>> node_by_name_;
  ClaimIndex claims_;
  boost::unordered_flat_map<uint64_t, uint32_t> node_by_id_;
  boost::unordered_flat_map<uint64_t, Attempt*> attempt_by_job_;  ///< One of each; mostly the newest.
  void add_tenant_name(const Tenant& tenant);
  void drop_tenant_name(const Tenant& tenant);
  std::map<std::string, std::vector<TenantId>, std::less<>> tenants_by_name_;  ///< Ids ascend; none deleted.
  boost::unordered_flat_map<uint64_t, Tenant*> tenant_by_id_;
  /// A tenant's remembered requests, chained by RememberedRequest::next.
  struct RequestChain {
    uint64_t oldest = 0;
    uint64_t newest = 0;
    int64_t count = 0;
  };
  void count_requests(TenantId tenant, RequestChain& chain, int64_t change);

  boost::unordered_flat_map<uint64_t, uint64_t> request_by_hash_;  ///< To its number in `requests`.
  std::map<TenantId, RequestChain> request_chains_;
  std::set<std::pair<int64_t, TenantId>> request_counts_;
  std::set<std::pair<Time, SubmitterKey>> submitters_by_end_;
  std::set<uint32_t> removed_slots_;
};

}  // namespace gpusched
