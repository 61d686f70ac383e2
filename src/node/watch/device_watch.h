#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "node/ports/ports.h"

namespace gpusched {

/// One device of a node, as registered. Its index is its position.
struct DeviceFacts {
  std::string uuid;
  std::string model;
  int64_t memory_mb = 0;
  int32_t slowdown_celsius = 0;           ///< From here on it slows itself down; 0: its driver does not tell.
  std::string pci_slot = {};              ///< "0000:3b:00", by which the kernel names it; empty: not known.
  std::optional<int32_t> numa_node = {};  ///< NUMA node that it is attached to; absent: not known.
  std::string pci_bus_id = {};            ///< "0000:07:00.0"; empty: not known.
  bool mig = false;                       ///< In MIG mode: it runs slices alone.
  bool mig_pending = false;               ///< The mode changes with its next reset.
};

/// The links of a node's devices, as they are registered.
struct DeviceTopology {
  std::vector<int64_t> links;  ///< `Link::code` of each pair, in the order of `pair_index`; empty: not known.
  std::vector<std::optional<int32_t>> numa_nodes;  ///< By device; absent: not known. Empty: for none.
  std::string note;                                ///< Source of the links, or why they are not known.
};

/// Result of a fence check.
struct ReleaseVerdict {
  HeldDevice device;
  bool released = false;
  std::string evidence = {};  ///< Evidence that something is still there, when not released.
  Duration checked = {};      ///< For how long it has been looked at.
  bool slice_there = false;   ///< Nothing is in the MIG slice, and it is still to be destroyed.
};
struct ConditionNews {
  uint32_t index = 0;
  v1::DeviceCondition condition = v1::DEVICE_CONDITION_OK;
  std::string detail = {};
};

/// Watches a node's devices: readings for telemetry, conditions, and the release fence. Not thread-safe;
/// NodeCore owns it.
///
/// The fence (docs/adr/gpu-sharing.md for shares and slices, docs/adr/gpu-health.md for
/// daemons).
/// Problem: a job's end is no proof that its GPU is free: a process may hang in the driver, or have left the
/// job's box.
/// Idea: a device goes back only when a reading that was asked for after the attempt's end shows no process
/// on it and its memory at what it is when idle. While others have shares of it, a share is back when no
/// process is on the device but theirs; a MIG slice, when nothing is in the slice.
/// Example: idle, the device uses 450 MB. The attempt ends. First reading: pid 4711 is on it still. 50 ms
/// later: no process, but 9,000 MB used. 100 ms later: 470 MB, within 64 MB of idle: released. Each refusal
/// is told with its evidence; the scheduler quarantines a device for which that goes on too long.
/// Cost: one reading a check; the pauses double from 50 ms to 1 s.
class DeviceWatch {
 public:
  /// Whether the process belongs to an attempt that has the device, or a share of it, by its index.
  using IsAccounted = std::function<bool(uint32_t index, int64_t pid)>;

  /// Whether a process stays on a device that no attempt has, and is gone before one gets it.
  using IsKept = std::function<bool(int64_t pid)>;
  DeviceWatch(std::vector<DeviceFacts> facts, DeviceReader& reader, IsAccounted is_accounted,
              IsKept is_kept = {});

  /// An attempt holds the device: older checks are over, and readings are no measure of the idle device.
  void hold(HeldDevice device);
  /// The attempt that held it is over.
  void let_go(HeldDevice device);
  /// Checks a device that nobody holds, or a share that nobody has, at once and until it is free. Repeating
  /// it checks again, at once.
  void begin_release(HeldDevice device, Time now);
  /// Goes on with a check that was over: the slice could not be destroyed, and is looked at after `pause`.
  void resume_release(HeldDevice device, Time now, Duration pause);
  /// Whether a check of exactly this generation is going on.
  bool releasing(HeldDevice device) const;

  /// Asks for a reading of every device: for telemetry and conditions.
  void look_at_all(Time now);
  /// Has it read from now on, also when a reading is going on; the number that `looks` has when that is done.
  uint64_t look_after(uint32_t index, Time now);
  /// How many readings of it are done.
  uint64_t looks(uint32_t index) const { return slots_[index].looks; }
  /// Devices that were read since the last call. Xids of readings in between are in the last one.
  std::vector<uint32_t> take_fresh();
  void forget_xids(uint32_t index) { slots_[index].last.xids.clear(); }
  /// The driver did something else meanwhile: outstanding readings wait for their turn, and no silence is
  /// counted from before.
  void note_sign_of_life(Time now);
  /// Until then it is told to be unhealthy for this reason, in spite of good readings; what is on it is
  /// released as ever.
  void bar(uint32_t index, std::string reason, Time until, Time now);
  /// As told last: what the reading says, or why it is barred.
  const ConditionNews& told(uint32_t index) const { return slots_[index].told; }
  /// A reading that took time.
  void on_reading(uint32_t index, DeviceReading reading, Time now);
  /// Does the checks that are due.
  void tick(Time now);
  Time next_due() const;

  /// Verdicts and conditions since the last call.
  std::vector<ReleaseVerdict> take_verdicts();
  std::vector<ConditionNews> take_conditions();

  const std::vector<DeviceFacts>& facts() const { return facts_; }
  /// Its last reading shows no more memory in use than it has when it is idle.
  bool memory_is_idle(uint32_t index) const { return used_mb(index) <= idle_mb(index); }
  /// Its last reading shows the MIG slice, and nothing in it.
  bool is_empty(const HeldDevice& slice) const {
    const SliceReading* const found = slice_of(slice);
    return found != nullptr && found->processes.empty();
  }
  const DeviceReading& last_reading(uint32_t index) const { return slots_[index].last; }
  /// Its last reading was taken just now and says how the device is used.
  bool is_current(uint32_t index, Time now) const;

 private:
  struct Check {
    HeldDevice device;
    Duration pause;
    Time due;
    Time since = {};     ///< Time of the first look.
    bool asked = false;  ///< The outstanding reading was asked for after the check began.
  };
  struct Slot {
    DeviceReading last;
    Time read_at;  ///< Not valid: never.
    int holders = 0;
    std::optional<int64_t> idle_memory_mb;
    std::vector<Check> checks;  ///< One for the device, or one for each of its shares.
    Time asked_at;              ///< Time of the outstanding reading; not valid: none.
    bool silence_told = false;  ///< The driver's silence was made a condition.
    ConditionNews told;
    std::string barred;  ///< Why, until `barred_until`.
    Time barred_until;
    bool fresh = false;  ///< Read, and not taken yet.
    bool again = false;  ///< To be asked again at once.
    uint64_t looks = 0;
  };
  void ask(uint32_t index, Time now);
  void settle_reading(uint32_t index, Time now);
  void judge(uint32_t index, Time now);
  void tell_condition(uint32_t index, Time now);
  Check* check_of(const HeldDevice& device);
  int64_t idle_mb(uint32_t index) const;
  /// Memory in use, but for what daemons have.
  int64_t used_mb(uint32_t index) const;
  /// Why nothing new may be placed on it though its driver says that it is well; empty: nothing.
  std::string reason_against(uint32_t index, Time now) const;
  std::optional<std::string> evidence_against_release(uint32_t index, const Check& check) const;
  const SliceReading* slice_of(const HeldDevice& device) const;

  std::vector<DeviceFacts> facts_;
  DeviceReader& reader_;
  IsAccounted is_accounted_;
  IsKept is_kept_;
  std::vector<Slot> slots_;
  std::vector<ReleaseVerdict> verdicts_;
  std::vector<ConditionNews> conditions_;
};

}  // namespace gpusched
