#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "engine/commands.h"
#include "engine/events.h"
#include "engine/policy/policy.h"
#include "model/free_index.h"
#include "model/state.h"

namespace gpusched {

/// Why the jobs of a class wait, beyond their place in line.
enum class WaitCode : uint8_t {
  kQueued = 0,    ///< Not looked at yet, or its turn comes in the next slice.
  kNoNode,        ///< No node is registered.
  kNoSuchDevice,  ///< No registered node has that kind or number of GPUs.
  kTooLarge,      ///< No registered node has that much CPU or memory.
  kNodesAway,     ///< Nodes that could run it do not report.
  kDevicesUnfit,  ///< Enough GPUs exist, but unhealthy, missing or quarantined ones are among them.
  kGpusBusy,
  kCpuBusy,
  kMemoryBusy,
  kNodeFull,   ///< The limit of attempts per node.
  kQuota,      ///< The tenant's limit, with what it uses now.
  kNoFeature,  ///< No registered node can do what it asks for, such as running container images.
  kNodesHeld,  ///< Nodes that could run it are draining or validating.
};
std::string_view to_string(WaitCode code);

/// The dominant reason of a class, with its evidence.
struct WaitReason {
  WaitCode code = WaitCode::kQueued;
  Part wanted;                ///< What one member needs.
  int64_t gpus_free_max = 0;  ///< The most fitting GPUs free on one node.
  int64_t nodes_fitting = 0;  ///< Nodes that could run it when empty.
  TenantId tenant;            ///< kQuota: whose limit.
  Resource resource = Resource::kNone;
  int64_t limit = 0;
  int64_t current = 0;

  friend bool operator==(const WaitReason&, const WaitReason&) = default;
};

/// One sentence for people.
std::string describe(const WaitReason& reason);
/// Names of events that could lift it.
std::vector<std::string> lifted_by(const WaitReason& reason);

/// Plans cycles: what waits onto what is free, in slices. Leader only; pure; not thread-safe. It keeps what
/// it learned between cycles, so that one touches only what changed: a class whose head does not fit is
/// blocked, with its reason, until an event could lift that.
///
/// One plan is in flight at a time: after `plan` returned a command, its events must have come through
/// `observe` (and `plan_applied` been called) before the next call of `plan`.
class Planner {
 public:
  explicit Planner(policy::PolicySet policies);

  /// Learns a whole state, at start. Without `nodes_present` a node takes work only when it has registered
  /// again: what it runs may not be what a state that was restored from an older copy says.
  void reset(const State& state, bool nodes_present = true);
  /// Learns an event that `state` already has.
  void observe(const State& state, const Event& event);
  /// True when `plan` might place something.
  bool wants_cycle() const { return !ready_.empty() || pending_unblock(); }

  struct Slice {
    CommitPlan plan;    ///< No groups: nothing to commit.
    bool more = false;  ///< Work is left for another slice.
  };
  /// One slice of a cycle: at most limits::kPlacementsPerSlice placements and about
  /// limits::kNodeVisitsPerSlice looks at nodes.
  Slice plan(const State& state);
  /// The last plan was decided: what was stale is looked at again.
  void plan_applied(const State& state);

  /// Why the class's jobs wait.
  const WaitReason& reason(uint32_t job_class) const;
  /// Classes whose reason changed since the last call.
  std::vector<uint32_t> take_changed_reasons();

 private:
  enum class ClassState : uint8_t { kIdle = 0, kReady, kBlocked };
  struct ClassInfo {
    ClassState state = ClassState::kIdle;
    OrderKey head;                         ///< The key under which it stands in `ready_`.
    uint32_t planned = 0;                  ///< Jobs from its front on that the plan in flight places.
    uint64_t device_classes = 0;           ///< Those that fit its part, one bit each.
    std::size_t device_classes_known = 0;  ///< How many there were when that was found.
    Bitmap refused;                        ///< Nodes that cannot take it in this cycle.
    uint64_t refused_cycle = 0;
    WaitReason reason;
    bool reason_changed = false;
  };
  struct NodeInfo {
    int64_t cpu_milli_free = 0;
    int64_t memory_mb_free = 0;
    uint64_t free_mask = 0;
    uint32_t attempt_count = 0;
    bool present = false;  ///< Registered since the planner began.
    bool ready = false;
    bool dirty = false;
    std::vector<std::pair<uint32_t, uint64_t>> class_masks;  ///< All its slots by device class.
  };
  struct Choice {
    uint32_t node = Bitmap::kNone;
    uint64_t device_mask = 0;
    uint32_t device_class = FreeIndex::kNoDevices;
    policy::Score score;
  };

  struct Planned {
    JobId job;
    uint32_t attempt = 0;
    uint32_t node = 0;
  };

  bool pending_unblock() const { return unblock_all_ || !freed_nodes_.empty() || !freed_tenants_.empty(); }
  ClassInfo& info(uint32_t job_class);
  void mark_dirty(uint32_t slot);
  void node_gained(const State& state, NodeId node);
  void node_changed(const State& state, NodeId node);
  void make_ready(const State& state, uint32_t job_class);
  void take_from_ready(uint32_t job_class);
  void block(uint32_t job_class, const WaitReason& reason);
  void set_reason(uint32_t job_class, const WaitReason& reason);
  void tenant_gained(const State& state, TenantId tenant);
  void refresh_node(const State& state, uint32_t slot);
  void refresh_device_classes(const State& state, ClassInfo& info, const Part& part);
  void unblock(const State& state);
  bool fits_node(const State& state, uint32_t job_class, uint32_t slot);
  Choice choose(const State& state, uint32_t job_class);
  uint32_t scan_bucket(const State& state, uint32_t job_class, uint32_t index_class, uint32_t free,
                       Choice& best);
  policy::NodeView view_of(const State& state, uint32_t slot, uint32_t device_class) const;
  bool place_head(const State& state, uint32_t job_class, CommitPlan& plan);
  void touch_class(const State& state, JobId job);
  void reserve(const State& state, const Job& job, const Part& part, const Choice& choice, CommitPlan& plan);
  std::optional<WaitReason> quota_block(const State& state, uint32_t job_class) const;
  WaitReason explain_refusal(const State& state, uint32_t job_class);
  void index_node(uint32_t slot);

  policy::PolicySet policies_;
  std::vector<ClassInfo> classes_;
  std::set<std::pair<OrderKey, uint32_t>> ready_;
  std::set<uint32_t> blocked_;
  std::vector<NodeInfo> nodes_;
  FreeIndex index_;
  std::vector<uint32_t> dirty_nodes_;
  std::vector<uint32_t> freed_nodes_;  ///< Gained something since the last cycle.
  std::set<TenantId> freed_tenants_;   ///< Use less than at the last cycle, or may use more.
  bool unblock_all_ = false;
  std::vector<uint32_t> changed_reasons_;
  uint64_t cycle_ = 0;
  uint64_t visits_ = 0;           ///< Nodes looked at in this slice.
  std::vector<Planned> planned_;  ///< In the plan in flight.
  std::vector<uint32_t> planned_classes_;
  std::vector<std::pair<TenantId, Amount>> planned_usage_;
};

}  // namespace gpusched
