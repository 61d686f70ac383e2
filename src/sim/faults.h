#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpusched::sim {

/// Faults of the simulated world. Each seed draws which of the allowed ones it uses.
enum class Fault : uint8_t {
  kDelay = 0,    ///< Messages and disks take long now and then.
  kCut,          ///< Streams break; what was not delivered is lost.
  kStall,        ///< Streams fall silent, both ways or one, and may come to life again.
  kDuplicate,    ///< Messages come twice.
  kReorder,      ///< Messages overtake each other.
  kHostKill,     ///< The scheduler's process is killed.
  kHostPower,    ///< The scheduler's machine loses power: writes that were not synced are torn.
  kDiskFull,     ///< The scheduler's disk is full for a while.
  kSyncFails,    ///< The scheduler's disk reports a failed sync.
  kAgentKill,    ///< An agent's process is killed; its shims go on.
  kReboot,       ///< A node loses power.
  kReinstall,    ///< A node comes back with an empty data folder.
  kShimDeath,    ///< A shim is killed, and its processes with it; or it is stopped.
  kGpu,          ///< A device is unhealthy or missing by its driver, shows a fault, or gets hot.
  kBusyDevice,   ///< Devices stay busy after their job ended.
  kSlowDriver,   ///< Readings take time, or hang.
  kClockStep,    ///< Wall clocks jump.
  kPause,        ///< Scheduler or agent stands still for seconds.
  kStartFails,   ///< Commands that cannot be started.
  kCopy,         ///< A node's machine is copied, or its agent starts under another name.
  kDiskFails,    ///< Calls on the scheduler's disk fail, once or for a while.
  kDiskLies,     ///< The scheduler's disk says that it did what it did not, or did elsewhere.
  kDecay,        ///< Bytes on the scheduler's disk change.
  kAgentDisk,    ///< An agent's disk is full, or fails a sync.
  kClockYears,   ///< The scheduler's wall clock is off by years for a while, mostly when one starts.
  kSecondHost,   ///< A second scheduler is started on the folder of the first.
  kOlderHost,    ///< An older program is started on the folder before the right one.
  kEncoderErrs,  ///< Snapshots are written that do not read back as the state.
  kHostStop,     ///< The scheduler is stopped as an operator does it.
  kGpuDaemons,   ///< Daemons that are no job's stay on every GPU: the multi-process service, monitoring.
};
inline constexpr std::size_t kFaultCount = 30;
/// Faults from here on are drawn from the disks' own generator.
inline constexpr Fault kFirstDiskFault = Fault::kDiskFails;
/// Faults from here on are drawn from the generator of the folder and its clock.
inline constexpr Fault kFirstFolderFault = Fault::kClockYears;

std::string_view to_string(Fault fault);

class FaultSet {
 public:
  constexpr FaultSet() = default;
  static constexpr FaultSet all() { return FaultSet((uint32_t{1} << kFaultCount) - 1); }

  constexpr bool has(Fault fault) const { return ((bits_ >> static_cast<uint32_t>(fault)) & 1) != 0; }
  constexpr void add(Fault fault) { bits_ |= uint32_t{1} << static_cast<uint32_t>(fault); }
  constexpr void remove(Fault fault) { bits_ &= ~(uint32_t{1} << static_cast<uint32_t>(fault)); }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr bool operator==(FaultSet, FaultSet) = default;

 private:
  constexpr explicit FaultSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_ = 0;
};

/// "all", "none", or names with commas: "cut,host-kill". A name after '-' is taken away: "all,-reorder".
Result<FaultSet> parse_faults(std::string_view text);
/// The names with commas; "none" when there is none.
std::string to_string(FaultSet faults);

}  // namespace gpusched::sim
