#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/types.h"

/// Nodes, their devices, and the cluster as a whole.
namespace gpusched::api {

struct SliceView {
  JobId job;
  std::string profile;
  int32_t start = 0;  ///< Its first slot of memory.
  bool draining = false;
};
/// A job that has a device, or a part of it.
struct HolderView {
  JobId job;
  TenantId tenant;
  std::string owner;  ///< As for a job: "person ana"; empty: nobody is known to.
  Time since;         ///< Time of its placement.
  int32_t milli = 0;  ///< Size of a share or a slice, in thousandths of the device; 0: all of it.
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
  int32_t milli_used = 0;       ///< Thousandths that the shares of a shared device have.
  int64_t memory_mb_given = 0;  ///< Memory that these shares have.
  std::vector<JobId> shared_by;
  std::vector<HolderView> holders;  ///< All of them, by job.
  /// The operator, or "scheduler", that keeps it from new work, and why; empty: nobody does.
  std::string quarantined_by, quarantine_reason;
  FaultClass fault = FaultClass::kNone;  ///< Fault that its node found; its code and detail follow.
  std::string fault_code, fault_detail;
  Time fault_at;                     ///< Time since when it stands.
  std::optional<int32_t> numa_node;  ///< Not given: not known.
  std::string pci_bus_id;
  std::optional<int32_t> island;  ///< Not given: it is joined to no other.
  bool mig = false;               ///< In MIG mode.
  std::string mig_room;           ///< Slices that still fit, "1x 3g.40gb, 4x 1g.10gb".
  std::vector<SliceView> slices;  ///< Slices that it is cut into, by their starts.
  int32_t gpu_id = 0;             ///< A number of its own in the cluster, for as long as its node is known.
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
  std::string state_by, state_reason;  ///< The requester of this state, and the reason.
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
  Time heard_at;  ///< When it last reported; not valid: not since the scheduler started.
  std::string version;
  std::vector<LinkView> links;  ///< Links between each two devices, as far as known.
  std::string topology_note;
};

struct ClusterView {
  int64_t total_nodes = 0, online_nodes = 0, total_gpus = 0, available_gpus = 0;
  int64_t total_jobs = 0;  ///< Ever accepted.
  int64_t running_jobs = 0, pending_jobs = 0;
  uint64_t sequence = 0;
  std::string name;  ///< Drawn once, never changed (docs/adr/nodes.md). Empty: an older journal.
  double average_gpu_utilization = 0;  ///< 0..1 over devices that report it.
  Time paused_since;                   ///< Not valid: starts are not paused.
  std::string paused_by, pause_reason;
};

/// Pools for online and for batch work.
struct PoolsView {
  struct Pool {
    int64_t quota = 0;  ///< Whole GPUs.
    int64_t used = 0;   ///< GPUs that its jobs hold, a part of one as one.
  };
  bool on = false;         ///< False: there are none, each may use all.
  bool set = false;        ///< The shares were set by a call, and differ from the configuration's.
  int64_t total_gpus = 0;  ///< GPUs of nodes in service.
  Pool online, batch;
};

/// Nodes, their devices, and the cluster as a whole. Everything is thread-safe and returns at once; answers
/// come by `Done`.
class NodeBackend {
 public:
  virtual ~NodeBackend() = default;

  virtual void confirm_dead(const CallerPtr& caller, const std::string& node, const std::string& by,
                            Done<NodeView> done) = 0;
  /// Takes a node off the books. kNodeAlive while its agent is connected, kNodeBusy while it holds work or is
  /// reserved. `by` is logged.
  virtual void remove_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                           Done<Unit> done) = 0;
  /// An operator's word on a device: kUnhealthy quarantines it, kOk ends that. `by` and `detail` are shown.
  virtual void set_condition(const CallerPtr& caller, const std::string& node, uint32_t index,
                             DeviceCondition condition, const std::string& detail, const std::string& by,
                             Done<NodeView> done) = 0;
  /// `by` is shown beside the reason.
  virtual void drain_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                          const std::string& reason, Done<NodeView> done) = 0;
  virtual void resume_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                           Done<NodeView> done) = 0;
  /// kNodeNotDrained while it takes work or runs something.
  virtual void reboot_node(const CallerPtr& caller, const std::string& node, const std::string& reason,
                           Done<NodeView> done) = 0;
  virtual void label_node(const CallerPtr& caller, const std::string& node, std::vector<Label> set,
                          std::vector<std::string> remove, Done<NodeView> done) = 0;
  virtual void list_nodes(const CallerPtr& caller, Done<std::vector<NodeView>> done) = 0;
  virtual void get_node(const CallerPtr& caller, const std::string& node, Done<NodeView> done) = 0;
  virtual void get_cluster(const CallerPtr& caller, Done<ClusterView> done) = 0;
  virtual void get_pools(const CallerPtr& caller, Done<PoolsView> done) = 0;
  /// Gives online work that many thousandths of the GPUs, and batch work the rest. kConflict when a pool that
  /// does not lend holds more than its new share.
  virtual void set_pools(const CallerPtr& caller, int64_t online_milli, const std::string& by,
                         Done<PoolsView> done) = 0;
  /// Stops all starts, or lets them go on; what runs is left alone. `by` and `reason` are shown.
  virtual void pause_starts(const CallerPtr& caller, bool paused, const std::string& by,
                            const std::string& reason, Done<ClusterView> done) = 0;
};

}  // namespace gpusched::api
