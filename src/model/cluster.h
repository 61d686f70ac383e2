#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "model/decay.h"
#include "model/mig.h"
#include "model/types.h"

namespace gpusched {

/// A kind of device: equal ones are interchangeable for placement. Interned; its number is its index.
struct DeviceClass {
  std::string model;
  int64_t memory_mb = 0;
  bool mig = false;  ///< In MIG mode: allocated only in slices.

  /// Returns its MIG profiles; null: not in MIG mode, or an unknown model.
  const mig::Table* table() const { return mig ? mig::table_of(model, memory_mb) : nullptr; }
  /// The memory that a share or slice, which the kind serves, takes of a device of this kind that has so
  /// much.
  int64_t share_mb_of(const Part& part, int64_t device_mb) const;
  /// A member of the part could run on devices of this kind.
  bool serves(const Part& part) const;
  /// Place of a serving kind among the models that the part asks for; 0: the preferred one.
  std::size_t rank_for(const Part& part) const;
  friend bool operator==(const DeviceClass&, const DeviceClass&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "model", self.model);
    visit(2, "memory_mb", self.memory_mb);
    visit(3, "mig", self.mig);
  }
};

/// Part of a shared device that a member of an attempt holds.
struct Share {
  AttemptKey held_by;
  int32_t milli = 0;
  int64_t memory_mb = 0;
  Time draining_since;  ///< Time since when it drains: its attempt ended, the node has not yet seen it empty.
  std::string mig_profile = {};  ///< MIG profile, on a device in MIG mode.
  int32_t mig_start = 0;         ///< Slot of the device's memory at which the slice begins.

  bool draining() const { return draining_since.valid(); }
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "held_job", self.held_by.job);
    visit(2, "held_attempt", self.held_by.attempt);
    visit(3, "held_member", self.held_by.member);
    visit(4, "milli", self.milli);
    visit(5, "memory_mb", self.memory_mb);
    visit(6, "draining_since", self.draining_since);
    visit(7, "mig_profile", self.mig_profile);
    visit(8, "mig_start", self.mig_start);
  }
};

/// One device in its slot on its node. `generation` counts its releases: what names a device names its
/// generation too, and is stale when they differ.
struct Device {
  std::string uuid;
  uint32_t device_class = 0;
  uint32_t generation = 0;
  int32_t milli_capacity = 1000;
  int64_t memory_mb = 0;
  DeviceState state = DeviceState::kFree;
  DeviceCondition condition = DeviceCondition::kOk;
  AttemptKey held_by;  ///< While held or draining; job 0: an attempt that the state does not know.
  JobId promised_to;   ///< Job that gets it when it is free again; 0: any.
  Time draining_since;
  std::string detail;  ///< The condition's or the quarantine's evidence.

  bool barred = false;               ///< An operator took it out of use, whatever its driver says.
  std::string barred_detail;         ///< Why.
  std::string barred_by;             ///< Operator who barred it.
  bool hot = false;                  ///< Takes no new work until it has cooled; what runs there goes on.
  std::string hot_detail;            ///< The evidence, with the temperature at which it is well again.
  std::optional<int32_t> numa_node;  ///< NUMA node that it is attached to; absent: not known.
  std::string pci_bus_id;            ///< "0000:07:00.0"; empty: not known.

  FaultClass fault = FaultClass::kNone;  ///< The gravest that stands, found by its node.
  std::string fault_code;                ///< "xid 79", "ecc_uncorrected", ...
  std::string fault_detail;              ///< The evidence.
  int64_t fault_id = 0;  ///< Id of the node's latest report on its faults, whether or not one stands.
  Time fault_at;         ///< Time since when it stands.

  Time missing_since;  ///< Time since when its node registers without it.

  /// Class that it has once it is free, after its MIG mode was switched while something held it. It takes no
  /// more shares until then. Absent: its class stays.
  std::optional<uint32_t> next_class;

  std::vector<Share> shares;  ///< While shared, or quarantined when it was; those that drain too. By holder.

  /// Returns the thousandths not held by shares; of a free device: all.
  int64_t milli_left() const;
  int64_t memory_mb_left() const;
  const Share* share_of(const AttemptKey& key) const;
  /// Shares of it may be given away, as far as the device goes.
  bool takes_shares() const;
  /// Another share of that size, which the device's kind serves, fits beside what is held of it; of a slice:
  /// one that begins at that slot.
  bool has_room_for(const DeviceClass& kind, const Part& part, int32_t mig_start) const;
  /// The device's present slices, those that drain too. `table` must be that of the device.
  std::vector<mig::Instance> slices(const mig::Table& table) const;

  /// Returns whether it is fit for work, heat aside, which passes by itself.
  bool sound() const { return condition == DeviceCondition::kOk && !barred && fault < FaultClass::kDrain; }
  bool fit() const { return sound() && !hot; }
  bool placeable() const { return state == DeviceState::kFree && fit(); }
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "uuid", self.uuid);
    visit(2, "device_class", self.device_class);
    visit(3, "generation", self.generation);
    visit(4, "milli_capacity", self.milli_capacity);
    visit(5, "memory_mb", self.memory_mb);
    visit(6, "state", self.state);
    visit(7, "condition", self.condition);
    visit(8, "held_job", self.held_by.job);
    visit(9, "held_attempt", self.held_by.attempt);
    visit(10, "held_member", self.held_by.member);
    visit(11, "promised_to", self.promised_to);
    visit(12, "draining_since", self.draining_since);
    visit(13, "detail", self.detail);
    visit(14, "barred", self.barred);
    visit(15, "barred_detail", self.barred_detail);
    visit(16, "shares", self.shares);
    visit(17, "barred_by", self.barred_by);
    visit(18, "hot", self.hot);
    visit(19, "hot_detail", self.hot_detail);
    visit(30, "fault", self.fault);
    visit(31, "fault_code", self.fault_code);
    visit(32, "fault_detail", self.fault_detail);
    visit(33, "fault_id", self.fault_id);
    visit(34, "fault_at", self.fault_at);
    visit(40, "numa_node", self.numa_node);
    visit(41, "pci_bus_id", self.pci_bus_id);
    visit(50, "next_class", self.next_class);
    visit(51, "missing_since", self.missing_since);
  }
};

/// An attempt that failed by what may be its node's fault.
struct NodeFailure {
  TenantId tenant;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "at", self.at);
  }
};

/// End of an attempt on a node, not by order.
struct NodeEnd {
  TenantId tenant;
  JobId job;
  Time at;
  bool quick = false;    ///< Failed soon after its start.
  bool excused = false;  ///< The job failed as soon elsewhere: that says nothing of the node.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "job", self.job);
    visit(3, "at", self.at);
    visit(4, "quick", self.quick);
    visit(5, "excused", self.excused);
  }
};

/// A machine that runs an agent.
struct Node {
  NodeId id;
  std::string name;
  std::string instance;  ///< The agent's data folder: two folders cannot be one node.
  std::string boot_id;
  std::string machine;  ///< Machine of `boot_id`; empty: unknown. Since feature level 6.
  std::string version;
  NodeState state = NodeState::kReady;
  Time state_since;
  Time silent_since;  ///< Time since when it has been silent and not ready.
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  std::vector<Device> devices;
  Availability availability = Availability::kInService;
  std::string availability_by;      ///< Author: "agent", "scheduler" or an operator.
  std::string availability_reason;  ///< Reason, in one sentence.
  Time availability_since;
  std::vector<std::string> features;  ///< Names as reported by the agent, sorted.
  std::vector<Label> labels;          ///< An operator's, sorted by name; they stand over the agent's.
  std::vector<Label> agent_labels;    ///< Sorted by name.
  std::vector<NodeFailure> failures;  ///< The last ones, oldest first.
  std::string address;                ///< Address for gang members on other nodes; empty: its name.
  /// Links of each two of its devices, as `Link::code` in the order of `pair_index`; empty: unknown.
  std::vector<int64_t> links;
  std::string topology_note;   ///< Why that is not known, or where it is from.
  std::vector<NodeEnd> ends;   ///< The last ones, oldest first; since feature level 5.
  std::string suspect_detail;  ///< Why an operator should look at it, which nobody drained; empty: no reason.
  Time suspect_since;
  bool removed = false;  ///< An operator took it off the books: its slot is the next new node's.

  const std::string& reached_at() const { return address.empty() ? name : address; }
  /// Returns the label's value, the operator's before the agent's; null: none.
  const std::string* label(std::string_view name) const;
  /// Can do what the part asks for, and takes parts of its kind: an external node those that ask for one.
  bool offers_features(const Part& part) const {
    return (part.features & ~feature_bits) == 0 && ((part.features ^ feature_bits) & kFeatureExternal) == 0;
  }
  /// May take new work.
  bool in_service() const { return state == NodeState::kReady && availability == Availability::kInService; }

  // Derived.
  uint32_t feature_bits = 0;  ///< Bits of those `features` that placement knows.
  uint32_t slot = 0;          ///< Index in the state's node table.
  int64_t cpu_milli_used = 0;
  int64_t memory_mb_used = 0;
  uint64_t free_mask = 0;            ///< The placeable devices, one bit each.
  std::vector<AttemptKey> attempts;  ///< Attempts on the node, sorted.
  uint32_t promised_count = 0;       ///< Members that it is promised to.
  uint32_t exclusive_count = 0;      ///< Members that it is held by, or promised to, for themselves alone.
  uint64_t booked_by = 0;            ///< The booking that is on.
  Time booked_from = kNever;         ///< Start of the next booking.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "name", self.name);
    visit(3, "instance", self.instance);
    visit(4, "boot_id", self.boot_id);
    visit(5, "version", self.version);
    visit(6, "state", self.state);
    visit(7, "state_since", self.state_since);
    visit(8, "cpu_milli", self.cpu_milli);
    visit(9, "memory_mb", self.memory_mb);
    visit(10, "devices", self.devices);
    visit(11, "silent_since", self.silent_since);
    visit(12, "availability", self.availability);
    visit(13, "availability_by", self.availability_by);
    visit(14, "availability_reason", self.availability_reason);
    visit(15, "availability_since", self.availability_since);
    visit(16, "features", self.features);
    visit(17, "labels", self.labels);
    visit(18, "agent_labels", self.agent_labels);
    visit(19, "failures", self.failures);
    visit(30, "ends", self.ends);
    visit(31, "suspect_detail", self.suspect_detail);
    visit(32, "suspect_since", self.suspect_since);
    visit(40, "links", self.links);
    visit(41, "topology_note", self.topology_note);
    visit(60, "address", self.address);
    visit(70, "machine", self.machine);
    visit(71, "removed", self.removed);
  }
};

/// A limit of GPU-milliseconds a window of time, and its use in the present one. Windows are the spans of
/// `length` since 1970-01-01 UTC, one after the other. Without a length there is no limit.
struct GpuTime {
  Duration length;
  int64_t max_ms = 0;
  int64_t used_ms = 0;  ///< Usage in the window of `at`, until then. Later holdings are not included.
  Time at;

  bool limited() const { return length.ns > 0; }
  /// Returns the end of the window of `now`.
  Time end_of_window(Time now) const { return Time{(now.ns / length.ns + 1) * length.ns}; }
  int64_t rest = 0;  ///< Thousandths of a GPU-millisecond to be added; less than one.

  /// Returns the usage in the window of `now` until then, if `held` was held since `at`. Rounded down.
  int64_t used_by(Time now, const Amount& held) const;
  /// Counts what was held until `now`. Without `keeps_rest` what is less than a GPU-millisecond is lost each
  /// time, as old journals have it.
  void settle(const Amount& held, Time now, bool keeps_rest);
};

/// The domain of this level that the node is in, by its labels: their values from the zone down, so that
/// racks of one name in two zones are two; of kNode its own number. Empty: it has no label of that level.
std::string domain_of(const SchedulingPolicy& policy, const Node& node, DomainLevel level);
/// Returns how many members of the part the node could hold if it were empty.
int64_t members_when_empty(const std::vector<DeviceClass>& classes, const Node& node, const Part& part);

struct Tenant {
  TenantId id;
  TenantId parent;
  std::string name;
  /// Its name without the differences that people do not see, where that takes more than the case of Latin
  /// letters; else empty. Names of one key are one name. Since feature level 11.
  std::string name_key;
  std::string email;
  std::string organization;
  Limits limits;
  Amount guarantee;  ///< Amount that it can reclaim from borrowers. 0: none of that resource.
  GpuTime gpu_time;  ///< Usage by placed jobs of the tenant and its children.
  int32_t priority_tier = 500;
  int64_t weight_milli = 1000;
  bool allow_preemption = false;
  bool can_preempt_others = false;
  bool anonymous = false;  ///< Callers without a credential may use it.
  bool deleted = false;
  Time created_at;
  Time updated_at;
  int64_t gpu_ms = 0;  ///< Held GPUs times milliseconds, of ended attempts.
  int64_t jobs_total = 0;
  int64_t jobs_successful = 0;
  int64_t jobs_failed = 0;
  DecayedUse use;              ///< Usage by placed jobs of the tenant and its children.
  int64_t reclaims = 0;        ///< Number of its jobs that started on reclaimed resources.
  int64_t reclaim_ms = 0;      ///< Total time that those jobs waited for reclaims.
  int64_t reclaim_ms_max = 0;  ///< Longest of these waits.

  // Derived.
  Amount usage;                               ///< Usage by placed jobs of the tenant and its children.
  Amount going;                               ///< Part of `usage` that is being preempted.
  int64_t waiting = 0;                        ///< Its own pending jobs.
  int64_t unfinished = 0;                     ///< Number of its own unfinished jobs.
  int64_t state_counts[kJobStateCount] = {};  ///< Number of its own jobs by state.
  int64_t unfinished_spec_bytes = 0;  ///< Bytes of its own jobs' specifications: see State::spec_bytes.
  int64_t recent_ends = 0;            ///< Number of its attempts' ends that nodes remember (Node::ends).
  int64_t recent_quick_ends = 0;      ///< Number of those ends that are soon failures.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "parent", self.parent);
    visit(3, "name", self.name);
    visit(4, "email", self.email);
    visit(5, "organization", self.organization);
    visit(6, "limits", self.limits);
    visit(7, "priority_tier", self.priority_tier);
    visit(8, "weight_milli", self.weight_milli);
    visit(9, "allow_preemption", self.allow_preemption);
    visit(10, "can_preempt_others", self.can_preempt_others);
    visit(11, "deleted", self.deleted);
    visit(12, "created_at", self.created_at);
    visit(13, "updated_at", self.updated_at);
    visit(14, "gpu_ms", self.gpu_ms);
    visit(15, "jobs_total", self.jobs_total);
    visit(16, "jobs_successful", self.jobs_successful);
    visit(17, "jobs_failed", self.jobs_failed);
    visit(20, "use_gpus", self.use.gpus);
    visit(21, "use_gpu_memory_mb", self.use.gpu_memory_mb);
    visit(22, "use_cpu_milli", self.use.cpu_milli);
    visit(23, "use_memory_mb", self.use.memory_mb);
    visit(24, "use_at", self.use.at);
    visit(25, "use_gpus_part", self.use.gpus_part);
    visit(26, "use_gpu_memory_mb_part", self.use.gpu_memory_mb_part);
    visit(27, "use_cpu_milli_part", self.use.cpu_milli_part);
    visit(28, "use_memory_mb_part", self.use.memory_mb_part);
    visit(30, "guarantee_gpus", self.guarantee.gpus);
    visit(31, "guarantee_gpu_memory_mb", self.guarantee.gpu_memory_mb);
    visit(32, "guarantee_cpu_milli", self.guarantee.cpu_milli);
    visit(33, "guarantee_memory_mb", self.guarantee.memory_mb);
    visit(34, "guarantee_jobs", self.guarantee.jobs);
    visit(35, "gpu_time_window", self.gpu_time.length);
    visit(36, "gpu_time_max_ms", self.gpu_time.max_ms);
    visit(37, "gpu_time_used_ms", self.gpu_time.used_ms);
    visit(38, "gpu_time_at", self.gpu_time.at);
    visit(39, "reclaims", self.reclaims);
    visit(40, "reclaim_ms", self.reclaim_ms);
    visit(41, "reclaim_ms_max", self.reclaim_ms_max);
    visit(42, "gpu_time_rest", self.gpu_time.rest);
    visit(43, "name_key", self.name_key);
    visit(90, "anonymous", self.anonymous);
  }
};

}  // namespace gpusched
