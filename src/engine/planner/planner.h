#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/time.h"
#include "engine/decide/guarantees.h"
#include "engine/messages/commands.h"
#include "engine/messages/events.h"
#include "engine/planner/claims/claims.h"
#include "engine/planner/domain_tree.h"
#include "engine/planner/gang_fit.h"
#include "engine/planner/lines/job_lines.h"
#include "engine/planner/lines/task_spaces.h"
#include "engine/planner/plan_slice.h"
#include "engine/planner/slice_index.h"
#include "engine/planner/wait_reason.h"
#include "engine/policy/backfill/release_timeline.h"
#include "engine/policy/devices/device_choice.h"
#include "engine/policy/fragmentation/placement.h"
#include "engine/policy/policy.h"
#include "model/index/free_index.h"
#include "model/state.h"

/// Decides which waiting jobs start now, and where (docs/adr/waiting-jobs.md, docs/policies.md).
///
/// Problem: a million jobs wait, ten thousand nodes change hundreds of times a second, and each waiting job
/// needs one reason. Idea: jobs of one tenant that want the same are a class, and classes of all tenants that
/// want the same share a shape. Only the first job of a class is looked at. If it fits nowhere its class and
/// shape are blocked, with the reason, until an event could lift it; then only what gained room is asked.
/// Example: 100,000 jobs of 8 GPUs wait, and no node has 8 free: one blocked class. A job of 4 ends on n7,
/// where 4 were free: n7 alone is asked for the head of that shape, which starts there.
/// Cost: by what changed, not by what waits; about 10 us when a job ends, nothing in a cycle without changes.
namespace gpusched {

/// Plans cycles in slices. Leader only; pure; not thread-safe. A copy made between cycles plans as this one
/// would, and shares the policies. One plan is in flight at a time: its events must have come through
/// `observe`, and `plan_applied` been called, before the next call of `plan`.
class Planner {
 public:
  /// Plans by `policies` until the state's configuration chooses others; its run times stay.
  explicit Planner(policy::PolicySet policies);

  /// Learns a whole state, at start. Without `nodes_present` a node takes work only when it has registered
  /// again: what it runs may not be what a state that was restored from an older copy says.
  void reset(const State& state, bool nodes_present = true);
  /// Learns an event that `state` already has.
  void observe(const State& state, const Event& event);
  bool wants_cycle() const {
    if (paused_) return false;
    return !queue_.empty() || pending_unblock() || look_ || look_promised_ || !fresh_classes_.empty();
  }
  /// When a promised start comes, or a job may end others: `look_at_promises` then, and `plan`. kNever:
  /// never.
  Time next_look() const;
  void look_at_promises(Time now);

  struct Slice {
    CommitPlan plan;     ///< No groups: nothing to commit.
    bool more = false;   ///< Work is left for another slice.
    uint64_t looks = 0;  ///< At nodes: what the slice cost.
  };
  /// One slice of a cycle: at most limits::kPlacementsPerSlice placements and about kNodeVisitsPerSlice looks
  /// at nodes. `now` is the time that commands would have now; it does not go back.
  Slice plan(const State& state, Time now);
  /// The last plan was decided: what was stale is looked at again.
  void plan_applied(const State& state);

  /// Something of the node is kept for a job of another class, which starts there later.
  bool is_kept_from(uint32_t slot, uint32_t job_class) const;

  /// Why the class's jobs wait.
  const WaitReason& reason(uint32_t job_class) const;
  /// Classes whose reason changed since the last call.
  std::vector<uint32_t> take_changed_reasons();

 private:
  class Learner;  ///< Applies each event to the planner (planner_observe.cc).
  enum class ClassState : uint8_t { kIdle = 0, kReady, kBlocked };
  struct ClassInfo {
    ClassState state = ClassState::kIdle;
    TenantId tenant;
    uint32_t shape = 0;  ///< An index into `shapes_`, unless it is idle.
    OrderKey head;  ///< Its first job that the slice has not placed; as such it stands in its tenant's line.
    policy::QueueKey key;  ///< Blocked classes only: place in the shape's set.
    Time ranked_at;        ///< Time at which `key` was found.
    bool kept = false;     ///< Blocked classes only: it stands in its shape's `kept`.
    WaitReason reason;
    bool reason_changed = false;
    std::optional<OrderKey> passed;  ///< Last job behind the head that was tried to pass it.
    std::vector<JobId> fresh;        ///< Came in line while the head was kept from nodes by a reservation.
    bool preempts = false;           ///< Its jobs may end others.
    Time tried_at;                   ///< Time of the last preemption try.
    Time look_at = kNever;           ///< Time at which the next try is worth it.
    JobId patient_job;               ///< Job that waits for what comes soon.
    Time patient_since;              ///< Since when `patient_job` waits.
    JobId room_for;                  ///< Job that waits for what others are giving back.
    Time room_since;                 ///< Since when `room_for` waits.
    JobId asking_job;                ///< Job that asks for its tenant's guarantee.
    Time asking_since;               ///< Since when `asking_job` asks.
    Time limits_from, limits_counted_at;  ///< When its limits have room for its promised job; when counted.
  };
  /// Rest of a shared device.
  struct SharedRoom {
    uint32_t device = 0;
    int64_t milli = 0;
    int64_t memory_mb = 0;
    uint32_t occupancy = 0;  ///< In MIG mode: as mig::occupancy_of has it.
  };
  struct NodeInfo {
    int64_t cpu_milli_free = 0;
    int64_t memory_mb_free = 0;
    uint64_t free_mask = 0;
    uint64_t sound_mask = 0;         ///< Devices that are well and not quarantined, hot or not, free or not.
    uint64_t healthy_mask = 0;       ///< Devices that are fit for work and not quarantined, free or not.
    std::vector<SharedRoom> shared;  ///< Devices that still take shares, ascending.
    uint32_t attempt_count = 0;
    bool present = false;  ///< Registered since the planner began.
    bool ready = false;
    bool dirty = false;
    bool reserved = false;        ///< A reservation is on it.
    bool booked = false;          ///< Some booking lies ahead.
    bool relabelled = true;       ///< Its place in the tree of domains is to be found again.
    bool exclusive = false;       ///< Somebody has it for itself.
    uint32_t build = UINT32_MAX;  ///< How it is built, as the chooser of devices knows it; else: not known.
    Amount capacity_counted;      ///< Its share of the planner's `capacity_`.
    int64_t weakest = INT64_MAX;  ///< The lowest priority of what runs there and may be ended for others.
    bool gives_back = false;      ///< Something there was told to end for another.
    uint64_t refreshed = 0;       ///< The cycle in which this was last made again.
    std::vector<std::pair<uint32_t, uint64_t>> class_masks;  ///< All its slots by device class.
    // With reservations only: what it has, and when what it runs is expected to give back what.
    policy::PoolAmounts room;
    policy::ReleaseTimeline releases;
    Time first_release;  ///< From then on, and before it was ever looked at, `releases` is to be made again.
  };
  using Waiting = std::set<std::pair<policy::QueueKey, uint32_t>>;  ///< Blocked classes in the queue's order.
  /// How many nodes could take one member of a part, by the checks that they pass; kept up as they change.
  struct Census {
    static constexpr std::size_t kStages = 16;
    uint64_t known = 0;          ///< How much of the log of changed nodes it has; 0: nothing.
    std::vector<uint8_t> stage;  ///< By slot: how many checks it passes.
    std::vector<uint8_t> free;   ///< By slot: fitting GPUs that are free, of a healthy one.
    std::array<int64_t, kStages> count = {};
    std::array<int64_t, limits::kDevicesPerNodeMax + 1> free_count = {};
  };
  /// The earliest start of one member of a part on each node, kept up as they change.
  struct Starts {
    uint64_t known = 0;
    std::vector<Time> of_node;  ///< kNever: none.
    std::set<std::pair<Time, uint32_t>> order;
  };
  /// Room on nodes for a job of several members, kept up as they change; all by part.
  struct Gang {
    uint32_t main = 0;  ///< The part that is shared out evenly: the elastic or largest one.
    std::vector<uint64_t> device_classes;  ///< As in a shape.
    std::size_t device_classes_known = 0;
    std::vector<GangRoom> rooms;  ///< Members that fit now, whatever is reserved.
    std::vector<GangRoom> empty;  ///< Those that would fit if nothing ran.
    uint64_t known = 0;
    /// With reservations only: when each node has room for how many more members of the main part.
    std::vector<std::vector<std::pair<Time, int32_t>>> steps;
    uint64_t steps_known = 0;
  };
  /// Rest of a node while members of a gang are put on it one by one.
  struct NodeTrial {
    uint32_t slot = 0;
    int64_t cpu_milli = 0;
    int64_t memory_mb = 0;
    uint64_t free_mask = 0;
    uint64_t taken_mask = 0;
    uint32_t attempt_count = 0;
    policy::PoolAmounts amounts;  ///< Amounts that the members take together.
  };
  /// Common data of classes of any tenant that want the same: where they fit. If the first of them does not
  /// fit, none of the others does.
  struct Shape {
    std::vector<Part> parts;
    uint64_t hash = 0;
    uint32_t users = 0;                    ///< Classes that are not idle.
    uint64_t device_classes = 0;           ///< Those that fit its part, one bit each.
    std::size_t device_classes_known = 0;  ///< How many there were when that was found.
    std::vector<uint64_t> by_model;        ///< Where it likes some models best: those classes, best first.
    Bitmap excluded;                       ///< Nodes that can never take it, by their labels or ids.
    uint64_t excluded_known = 0;           ///< Entries of the log of relabeled nodes that are in `excluded`.
    std::vector<int64_t> links_of;         ///< By slot: the strongest weakest link that it could give, empty.
    std::map<int64_t, uint32_t> links_count;  ///< How many nodes could give so much.
    int64_t links_best() const { return links_count.empty() ? 0 : links_count.rbegin()->first; }
    Bitmap refused;  ///< Nodes that cannot take it in this cycle.
    uint64_t refused_cycle = 0;
    uint64_t full_cycle = 0;  ///< The cycle in which nothing was found for it, and nothing can be any more.
    Waiting blocked;          ///< Classes that wait for room.
    Waiting kept;             ///< Looked at since there was room, and kept from it by reservations alone.
    uint32_t tries = 0;       ///< How many may still be looked at in this round.
    bool mixed = false;       ///< Some of its classes have a reason of their own.
    WaitReason reason;        ///< Common reason of all that wait for room.
    Census census;
    Starts starts;
    std::optional<Gang> gang;  ///< Set for shapes of several members.
  };
  struct Line {
    std::set<std::pair<OrderKey, uint32_t>> ready;
    std::optional<policy::QueueKey> key;  ///< Its key in `queue_`.
    Time ranked_at;                       ///< Time at which `key` was found.
    std::set<uint32_t> blocked;           ///< Its blocked classes that wait for room.
  };
  struct Choice {
    uint32_t node = Bitmap::kNone;
    uint64_t device_mask = 0;
    uint32_t device_class = FreeIndex::kNoDevices;
    policy::Score score;
    int64_t link_gbs = 0;  ///< The weakest link among the devices.
  };
  using Hold = BackfillHold;
  using Reservation = BackfillReservation;
  /// The first job of a class, as it stands against reservations.
  struct Candidate {
    JobId job;
    uint32_t job_class = 0;
    bool known = false;  ///< `key` and `end` are.
    policy::QueueKey key;
    Time end;                                 ///< Expected end, if it started now.
    Time end_by_limit;                        ///< Latest end, if it started now; kNever: it has no limit.
    const Reservation* refused_by = nullptr;  ///< One that kept it from a node; until reservations change.
    Time booked_from;                         ///< A booking that kept it from a node begins then.
    std::optional<uint64_t> affordable;       ///< Kinds of devices, once `affordable` was asked.
  };
  struct Planned {
    JobId job;
    uint32_t attempt = 0, node = 0;
    policy::PoolAmounts amounts;
  };
  /// How far a slice has placed the lines of classes.
  using Cursors = std::vector<std::pair<uint32_t, OrderedJobs::Cursor>>;
  /// Thousandths of GPUs, at most one node's, that batch and online work could still take of their own
  /// shares.
  using PoolRooms = std::array<int64_t, 2>;
  /// By what right a job ends others: without any, by its priority.
  struct Claim {
    const Tenant* covering = nullptr;  ///< This tenant's guarantee covers it.
    bool pool = false;                 ///< Its kind of work has less than its share.
    Amount wanted;                     ///< Amount that it would hold, on the devices at hand.

    bool any() const { return covering != nullptr || pool; }
  };
  /// Resources that one node could give to a job by ending others.
  struct Preempting {
    uint32_t node = 0;
    uint32_t device_class = FreeIndex::kNoDevices;
    std::vector<policy::VictimView> victims;
    policy::VictimCost cost;
    Claim claim;
  };

  bool pending_unblock() const { return unblock_all_ || !freed_nodes_.empty() || !freed_tenants_.empty(); }
  Shape& shape_of(uint32_t job_class) { return shapes_[info(job_class).shape]; }
  void start_over(const State& state);
  /// Places in line change with time, or with what others have.
  bool is_time_dependent() const { return policies_.queue_order->is_time_dependent() || can_reclaim(); }
  bool has_families() const { return policies_.queue_order->is_tree() || guarantees_; }
  void choose_policies();
  ClassInfo& info(uint32_t job_class);
  const Job& head_of(const State& state, uint32_t job_class);
  void mark_dirty(uint32_t slot);
  void node_gained(const State& state, NodeId node);
  void touch_class(const State& state, uint32_t job_class);
  void unblock(const State& state);
  bool place_on_free(const State& state, const Job& job, Candidate& candidate, CommitPlan& plan);
  bool place_head(const State& state, uint32_t job_class, CommitPlan& plan);
  void place(const State& state, const Job& job, Candidate& candidate, const Choice& choice,
             CommitPlan& plan);
  void go_on_behind(const State& state, uint32_t job_class, Cursors& cursors);
  void add_planned_usage(const State& state, const Job& job, const Amount& amount);

  // Order of the queue (planner_lines.cc).
  void make_ready(const State& state, uint32_t job_class);
  void put_ready(const State& state, uint32_t job_class, const OrderKey& head);
  void take_from_ready(const State& state, uint32_t job_class);
  void requeue_line(const State& state, TenantId tenant);
  void requeue_drifted(const State& state);
  void requeue_tenant(const State& state, TenantId tenant);
  void requeue_relatives(const State& state, TenantId tenant);
  void requeue_all(const State& state);
  void enter_family(const State& state, TenantId tenant);
  void leave_family(const State& state, TenantId tenant);
  void rank_blocked(const State& state, uint32_t job_class);
  void enqueue_blocked(const State& state, uint32_t job_class, bool kept);
  void leave_blocked(const State& state, uint32_t job_class);
  policy::QueueKey key_of(const State& state, const Job& head, const OrderKey& order) const;
  Amount planned_usage_of(TenantId tenant) const;
  void block(const State& state, uint32_t job_class, const WaitReason& reason);
  void make_idle(const State& state, uint32_t job_class);
  void set_reason(uint32_t job_class, const WaitReason& reason);

  // Shapes: classes that want the same (planner_shapes.cc).
  uint32_t acquire_shape(const State& state, uint32_t job_class);
  void release_shape(uint32_t shape);
  void reset_shapes();
  void note_node(uint32_t slot);
  void lift(const State& state, uint32_t shape);
  void lift_next(const State& state, uint32_t shape);
  void unblock_shapes(const State& state);
  void share_reason(uint32_t shape, const WaitReason& reason);
  template <typename Visit>
  void catch_up(uint64_t& known, Visit&& visit);
  bool is_far_behind(uint64_t known) const;
  void count_node(const State& state, Shape& shape, uint32_t slot);
  void refresh_census(const State& state, Shape& shape);
  std::optional<Reservation> start_of_shape(const State& state, const Shape& shape, uint32_t slot);
  void refresh_starts(const State& state, Shape& shape);
  int64_t count_but_for(const State& state, const Shape& shape, std::size_t stage);
  WaitReason explain_refusal(const State& state, uint32_t job_class);

  // Where it fits (planner_nodes.cc).
  void index_node(const State& state, uint32_t slot);
  void refresh_node(const State& state, uint32_t slot);
  void count_capacity(const Node& node, NodeInfo& copy);
  void refresh_device_classes(const State& state, Shape& shape);
  void refresh_excluded(const State& state, Shape& shape);
  void note_relabeled(uint32_t slot);
  void count_links(const State& state, Shape& shape, uint32_t slot);
  static policy::DeviceWish wish_of(const Node& node, const Part& part);
  bool satisfy_layout(const State& state, uint32_t slot, const Part& part, uint64_t mask);
  policy::DeviceChoice pick_devices(const policy::NodeView& view, uint32_t slot, const Part& part);
  Choice choose_among(const State& state, Candidate& candidate, uint64_t device_classes);
  /// Something runs there, or is left there or promised, by the state or by this slice.
  bool is_busy(const State& state, uint32_t slot) const;
  bool passes(const State& state, uint32_t slot, uint32_t device_class, const Part& part);
  /// The candidate might still run when the node's next booking begins; notes that in the candidate.
  bool meets_booking(const State& state, Candidate& candidate, uint32_t slot) const;
  bool fits_node(const State& state, uint32_t shape, uint32_t slot);
  Choice choose(const State& state, Candidate& candidate);
  Choice choose_on(const State& state, Candidate& candidate, uint32_t slot);
  uint32_t scan_bucket(const State& state, Candidate& candidate, uint32_t index_class, const Bitmap& bucket,
                       bool shared, Choice& best);
  policy::NodeView view_of(const State& state, uint32_t slot, uint32_t device_class, const Part& part) const;
  /// Devices in `mask` on this node that others have shares of and that have room for another share.
  uint64_t shared_with_room(const State& state, uint32_t slot, const Part& part, uint64_t mask) const;
  Choice choose_shared(const State& state, Candidate& candidate, uint64_t device_classes);
  Choice choose_slice(const State& state, Candidate& candidate, uint64_t device_classes);
  /// How good it is to put a slice of the part there: see mig::Chart.
  int64_t slice_rank(const Node& node, const SharedRoom& room, const Part& part) const;
  /// Where on the one device of the mask, which has room for it, a slice of the part begins; of any other
  /// part 0.
  int32_t slice_start(const State& state, uint32_t slot, const Part& part, uint64_t mask) const;
  // Where tasks go (planner_tasks.cc).
  void put_task_spaces(const State& state, uint32_t slot);
  bool is_packed(const State& state, const Candidate& candidate, const Part& part) const;
  bool takes_task(const State& state, Candidate& candidate, uint32_t kind, const TaskSpaces::Space& space);
  Choice choose_packed(const State& state, Candidate& candidate, uint64_t within);
  Choice choose_packed_among(const State& state, Candidate& candidate, uint64_t device_classes);
  // With a configured placement (planner_fragments.cc).
  void begin_fragments(const State& state);
  void learn_arrivals(const State& state);
  void note_arrival(const State& state, JobId job);
  void put_spaces(const State& state, uint32_t slot);
  static bool goes_by_fragments(const Shape& shape);
  Choice choose_by_fragments(const State& state, Candidate& candidate);
  void take_devices(const State& state, uint32_t slot, const Part& part, uint64_t mask, int32_t start);
  void index_shared(uint32_t slot);

  // All members or none (planner_gangs.cc).
  static Gang gang_of(const std::vector<Part>& parts);
  void refresh_gang(const State& state, Shape& shape);
  NodeTrial trial_on(uint32_t slot) const;
  std::optional<uint64_t> put(const State& state, const Shape& shape, uint32_t part, NodeTrial& at);
  int32_t room_beside(const State& state, const Shape& shape, uint32_t slot,
                      const std::vector<int32_t>& others, Candidate* candidate);
  int64_t gpus_unowed(const State& state, uint32_t job_class) const;
  int32_t members_affordable(const State& state, Candidate& candidate);
  std::vector<uint32_t> restricted_nodes() const;
  std::optional<GangFit> choose_gang(const State& state, Candidate& candidate);
  bool place_gang(const State& state, const Job& job, Candidate& candidate, CommitPlan& plan);
  void place_members(const State& state, const Job& job, Candidate& candidate, const GangFit& fit,
                     CommitPlan& plan);
  WaitReason explain_gang(const State& state, uint32_t job_class);
  bool any_member_fits(const State& state, Shape& shape, uint32_t slot);

  // When a gang starts that does not fit now (planner_gang_starts.cc).
  void find_steps(const State& state, Shape& shape, uint32_t slot);
  int32_t room_at(const Shape& shape, uint32_t slot, Time at, const std::vector<int32_t>& others,
                  int32_t members_most, policy::PoolAmounts& taken) const;
  std::vector<bool> open_nodes(const State& state, uint32_t job_class);
  Time earliest_gang_time(const Shape& shape, const std::vector<bool>& open) const;
  std::optional<Reservation> gang_start_at(const Shape& shape, const std::vector<bool>& open, Time at) const;
  std::optional<Reservation> gang_start_on_the_same(const Shape& shape, const std::vector<bool>& open,
                                                    Time earliest, const Reservation& before) const;
  std::optional<Reservation> gang_start_keeping(const Shape& shape, const std::vector<bool>& open, Time at,
                                                const Reservation& before) const;
  std::optional<Reservation> gang_start(const State& state, uint32_t job_class);
  bool refresh_gang_reservation(const State& state, Reservation& held);

  // Reservations (planner_reserve.cc).
  void complete(const State& state, Candidate& candidate) const;
  bool is_gone_by(const Candidate& candidate, Time start, Time trusting_until) const;
  const Reservation* delayed_by(const State& state, Candidate& candidate, uint32_t slot, const Part& part,
                                uint32_t device_class) const;
  const Reservation* delayed_by(const State& state, Candidate& candidate, uint32_t slot,
                                const policy::PoolAmounts& amounts) const;
  void take_extra(const State& state, Candidate& candidate, uint32_t slot,
                  const policy::PoolAmounts& amounts);
  policy::PoolAmounts amounts_on(uint32_t slot, const Part& part, uint32_t device_class) const;
  void refresh_releases(const State& state, uint32_t slot);
  static void add_release(NodeInfo& node, Time end, const policy::PoolAmounts& held);
  Time expected_end(const State& state, const Attempt& attempt) const;
  void release_of(const State& state, const AttemptKey& key, uint32_t slot);
  void release_promises(const State& state, uint32_t slot);
  std::optional<Reservation> start_on(const State& state, uint32_t job_class, uint32_t slot);
  void begin_by_limits(Reservation& start, uint32_t job_class);
  std::optional<Reservation> earliest_start(const State& state, uint32_t job_class);
  void promise(const State& state, uint32_t job_class);
  Reservation* reservation_of(uint32_t job_class);
  bool pass_reservations(const State& state, JobId job, CommitPlan& plan);
  void pass(const State& state, JobId id, CommitPlan& plan);
  void pass_behind_head(const State& state, uint32_t job_class, CommitPlan& plan);
  void pass_fresh(const State& state, CommitPlan& plan);
  void pass_on(uint32_t job_class);
  bool is_over_by(const State& state, uint32_t job_class, Time start);
  bool has_room_before_booking(const State& state, const Job& job, uint32_t slot) const;
  void drop_reservation(const State& state, uint32_t job_class);
  void refresh_reservations(const State& state);
  bool refresh_reservation(const State& state, Reservation& held);
  void fill_reservations(const State& state);
  void set_start(uint32_t job_class, Time start);
  void update_reserved(uint32_t slot);
  bool is_reserved(uint32_t slot) const { return nodes_[slot].reserved; }

  // Limits that keep it waiting, and claims on them (planner_limits.cc).
  std::optional<WaitReason> quota_block(const State& state, uint32_t job_class) const;
  std::optional<WaitReason> quota_block(const State& state, uint32_t job_class, const Amount& amount) const;
  std::optional<WaitReason> pool_block(const std::vector<Part>& parts, const State& state,
                                       const Amount& amount) const;
  std::optional<WaitReason> limit_block(const State& state, Candidate& candidate);
  std::optional<WaitReason> limit_kept_from(const State& state, Candidate& candidate, const Amount& amount);
  std::optional<WaitReason> overflow_beside(const State& state, uint32_t job_class, const Amount& amount,
                                            uint32_t holder) const;
  void claim_limits(const State& state, uint32_t job_class, const WaitReason& reason);
  void find_limit_start(const State& state, LimitClaim& claim) const;
  bool refresh_limits_from(const State& state, uint32_t job_class);
  void forget_claims(const State& state, TenantId tenant);
  void wake_limited(const State& state, TenantId tenant);
  bool waits_behind_limit(const ClassInfo& entry) const {
    return entry.state == ClassState::kBlocked && entry.reason.of_limit;
  }

  int64_t given_by(const State& state, uint32_t device_class, const Part& part) const;
  Amount amount_on(const State& state, const Job& job, uint32_t device_class) const;
  Amount expected_amount(const State& state, const std::vector<Part>& parts, int32_t last_members) const;
  uint64_t affordable(const State& state, Candidate& candidate) const;
  std::optional<WaitReason> memory_block(const State& state, Candidate& candidate);

  // Preemption: whom it may end (planner_preempt.cc).
  void refresh_preemptors(const State& state);
  void refresh_weakest(const State& state, uint32_t slot);
  void start_promised(const State& state, CommitPlan& plan);
  /// This slice starts the job, which is in line, where it is moved to.
  bool starts_where_moved(const State& state, JobId job) const;
  bool preempt(const State& state, const Job& job, Candidate& candidate, CommitPlan& plan);
  bool is_patient(const State& state, const Job& job, Duration patience, Duration at_most);
  int64_t rooms_coming(const State& state, const Job& job, Candidate& candidate, int64_t most);
  bool more_ask_than(const State& state, const Job& job, const Claim& claim, int64_t rooms);
  bool can_reclaim() const { return guarantees_ || pools_.lends(); }
  PoolRooms pool_rooms(const State& state) const;
  std::optional<Claim> reclaim_claim(const State& state, const Job& job);
  bool in_own_pool(const State& state, const Job& job) const;
  int64_t pool_held(const State& state, bool online) const;
  bool preserves_pool_shares(const State& state, const Job& job, const Claim& claim,
                             std::span<const Job* const> victims) const;
  bool preserves_guarantees(const State& state, const Job& job, const Claim& claim,
                            std::span<const Job* const> victims) const;
  std::optional<Preempting> find_victims(const State& state, const Job& job, Candidate& candidate,
                                         const Claim& claim, Time& look, bool beside_going);
  std::optional<Preempting> victims_on(const State& state, const Job& job, Candidate& candidate,
                                       uint32_t slot, uint32_t device_class, const Claim& claim, Time& look,
                                       bool beside_going);
  bool may_end(const State& state, const Job& job, const Attempt& attempt, const Claim& claim,
               Time& look) const;
  void commit(const State& state, const Job& job, Candidate& candidate, const Preempting& chosen,
              CommitPlan& plan);
  void look_again(uint32_t job_class, Time at);
  void retry_preemptors(const State& state);
  void guarantees_moved();
  bool could_run(const State& state, uint32_t slot, uint32_t device_class, uint64_t mask, const Part& part);

  policy::PolicySet policies_;
  SchedulingPolicy chosen_;  ///< By the configuration, when `policies_` is by it.
  JobLines waiting_;
  std::vector<ClassInfo> classes_;
  std::vector<Shape> shapes_;
  boost::unordered_flat_map<uint64_t, uint32_t> shape_by_hash_;
  std::vector<uint32_t> free_shapes_;
  std::vector<uint32_t> unused_shapes_;  ///< Those without users that may be wanted again, oldest first.
  std::vector<uint32_t> changed_log_;    ///< Slots of nodes that changed, behind `changed_begin_` others.
  uint64_t changed_begin_ = 1;
  std::vector<uint32_t> relabeled_log_;  ///< Those whose labels or devices did, behind so many others.
  uint64_t relabeled_begin_ = 1;
  policy::DeviceChooser chooser_;
  std::set<std::pair<Time, uint32_t>> ranked_classes_;  ///< Blocked classes by the time of their ranking.
  std::set<std::pair<Time, TenantId>> ranked_lines_;    ///< Tenants in the queue by their ranking's time.
  boost::unordered_flat_map<uint64_t, std::set<TenantId>>
      families_;                                        ///< Tenants that wait, by their tree's root.
  std::set<TenantId> moved_tenants_;                    ///< Use another amount than at the last cycle.
  bool someone_moved_ = false;                          ///< The same for a tenant that is not known.
  PoolRooms rooms_ranked_ = {};                         ///< Rooms with which keys were made.
  std::set<std::pair<TenantId, uint32_t>> over_quota_;  ///< Blocked classes by whose limit.
  std::set<uint32_t> preemptors_;  ///< Blocked classes that are tried again at their `look_at`.
  Amount capacity_ranked_;         ///< Capacity with which keys were made.
  boost::unordered_flat_map<uint64_t, Line> lines_;  ///< By tenant.
  std::set<std::pair<policy::QueueKey, TenantId>> queue_;
  std::vector<NodeInfo> nodes_;
  DomainTree domains_;
  FreeIndex index_;
  std::optional<policy::FragmentationPlacement> fragments_;  ///< Nothing: best fit.
  uint64_t device_classes_reused_ = 0;                       ///< As the state had it.
  std::size_t fragments_classes_ = 0;                        ///< Classes of devices that it learned with.
  FreeIndex shared_index_;  ///< Nodes by how much their least used shared device of a class has left.
  TaskSpaces task_spaces_;  ///< Where tasks may go; only where there may be tasks.
  SliceIndex slices_;       ///< Nodes by what is taken of those in MIG mode.
  std::vector<uint32_t> dirty_nodes_;
  std::vector<uint32_t> booked_nodes_;  ///< Where a booking lies ahead.
  std::vector<uint32_t> freed_nodes_;   ///< Gained something since the last cycle.
  std::set<TenantId> freed_tenants_;    ///< Use less than at the last cycle, or may use more.
  bool unblock_all_ = false;
  std::vector<Reservation> reservations_;
  std::map<LimitKey, LimitClaim> limit_claims_;
  std::map<LimitKey, LimitClaim> limit_starts_;  ///< Starts that were found for the last claims.
  std::vector<uint32_t> fresh_classes_;
  bool look_ = false;                  ///< A promised start has come.
  Time looked_at_;                     ///< When one last had.
  bool reservations_missing_ = false;  ///< Fewer than allowed, and a blocked class may want one.
  bool may_preempt_ = false;           ///< Some tenant's jobs may end some tenant's.
  bool guarantees_ = false;            ///< Some tenant is guaranteed something.
  bool look_promised_ = false;         ///< A promised job may be able to start.
  Time preempt_look_ = kNever;         ///< The earliest `look_at` of a blocked class.
  uint32_t victim_cursor_ = 0;         ///< The node at which the next search for victims begins.
  std::vector<JobId> planned_victims_;
  std::vector<std::pair<uint32_t, uint64_t>> planned_promised_;  ///< Slots and devices of its promises.
  std::vector<uint32_t> changed_reasons_;
  Amount capacity_;  ///< Total of the nodes in service.
  Time now_;
  uint64_t cycle_ = 0;
  SliceWork slice_;
  uint32_t passes_left_ = 0;      ///< Jobs behind a blocked one that this slice may still try.
  std::vector<Planned> planned_;  ///< In the plan in flight.
  std::vector<uint32_t> planned_classes_;
  std::vector<std::pair<JobId, Amount>> planned_jobs_;
  std::vector<std::pair<TenantId, Amount>> planned_usage_;
  guarantees::Change planned_held_;  ///< The same, without what this slice's victims give back.
  PoolShares pools_;                 ///< As they are configured.
  int64_t aging_ = 0;                ///< Aging by which the state's lines are ordered.
  int64_t level_ = 0;                ///< Feature level of the state.
  bool paused_ = false;              ///< Nothing is planned meanwhile; what is learned waits.
  int64_t planned_online_ = 0, planned_batch_ = 0;  ///< Thousandths of GPUs that this slice gives.
  int64_t planned_online_going_ = 0, planned_batch_going_ = 0;  ///< The same, of its victims.
};

// Visits what changed since `known`, or all nodes when that is less.
template <typename Visit>
void Planner::catch_up(uint64_t& known, Visit&& visit) {
  const uint64_t end = changed_begin_ + changed_log_.size();
  if (known < changed_begin_ || end - known > nodes_.size()) {
    slice_.visits += nodes_.size();
    for (uint32_t slot = 0; slot < nodes_.size(); ++slot) visit(slot);
  } else {
    slice_.visits += end - known;
    uint32_t last = Bitmap::kNone;
    for (uint64_t at = known; at < end; ++at) {
      const uint32_t slot = changed_log_[at - changed_begin_];
      if (slot != last) visit(slot);
      last = slot;
    }
  }
  known = end;
}

}  // namespace gpusched
