#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/attempts/endings.h"
#include "node/attempts/reports.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

namespace gpusched::agent {

/// Holders of devices and shares, and reports of their release. A device goes back when the attempt that had
/// it is over and DeviceWatch has seen it empty; the scheduler names a generation with each grant, by which
/// late words about earlier ones are known. Also tells devices' conditions.
class ReleaseFence {
 public:
  using DestroySlice = std::function<void(const HeldDevice&)>;
  /// `orphans_from`: before then an earlier agent's order to the driver may make a slice yet.
  /// `destroy_slice`: takes away a MIG slice that nothing is in; empty: this node makes none.
  ReleaseFence(const NodePorts& ports, AttemptTable& attempts, DeviceWatch& watch, Reports& reports,
               Endings& endings, Time orphans_from, DestroySlice destroy_slice)
      : ports_(ports),
        attempts_(attempts),
        watch_(watch),
        reports_(reports),
        endings_(endings),
        orphans_from_(orphans_from),
        destroy_slice_(std::move(destroy_slice)) {}

  /// The attempt's devices are its own from now on, until `release`.
  void hold(AttemptRow& attempt);
  /// Why an attempt cannot have what it was granted, in words: another one that is not over has it.
  std::optional<std::string> conflict_of(const std::vector<HeldDevice>& wanted) const;
  /// The attempt is over, and so is all that runs around it: its devices are looked at until they are empty.
  void release(AttemptRow& attempt);
  /// Releases devices of an order that is not carried out.
  void release_unheld(const v1::StartAttempt& order);

  void on_check_release(const v1::CheckRelease& order);
  void on_released_acked(const v1::Released& released, uint64_t report);
  void on_draining_acked(const v1::Draining& draining, uint64_t report);
  /// The slice is gone, or, with a problem, stays. False: nobody waits for that.
  bool on_slice_destroyed(uint32_t index, const std::string& profile, int32_t start,
                          const std::string& problem);
  /// Tells what DeviceWatch found out.
  void report_news();

  /// By device; no empty entries.
  const std::map<uint32_t, std::vector<AttemptRow*>>& holders() const { return holders_; }
  /// Null: nobody has it.
  const AttemptRow* holder_of(uint32_t index) const;
  /// Whether its release, or that of a share of it, is not acknowledged yet.
  bool is_draining(uint32_t index) const;
  /// The process belongs to an attempt that has the device, or a share of it.
  bool is_accounted(uint32_t index, int64_t pid) const;
  /// An attempt has the MIG slice, or waits for its release.
  bool is_wanted(uint32_t index, const SliceReading& slice) const;

 private:
  /// Subject of a release: a device, or an attempt's share of one.
  using Fence = std::pair<uint32_t, AttemptKey>;
  /// Release that is awaited: by the attempt that held it last.
  struct Release {
    HeldDevice device;
    std::optional<AttemptKey> key;
    uint64_t report = 0;        ///< Outstanding Released or Draining; 0: none.
    std::string evidence = {};  ///< Reported last.
    Duration pause = {};        ///< Before its slice, which could not be destroyed, is looked at again.
  };
  static Fence fence_of(const HeldDevice& device) { return {device.index, device.share_of}; }

  void let_go(AttemptRow& attempt);
  void begin(const HeldDevice& device, std::optional<AttemptKey> key, Time now);
  bool holds(const AttemptKey& key, uint32_t index) const;
  bool is_taken(const HeldDevice& device) const;
  bool has_next_holder(const HeldDevice& slice) const;
  void await(const HeldDevice& device);
  void forget_awaited(uint32_t index, const HeldDevice* but_shares_of);
  void begin_awaited(uint32_t index, Time now);
  void supersede_all(uint32_t index, const HeldDevice* but_shares_of);
  void supersede(const Fence& fence);
  void report_busy(const HeldDevice& device, const AttemptRow& holder);
  void report(const HeldDevice& device, bool released, const std::string& evidence,
              std::optional<Duration> checked = {});
  void judge(const ReleaseVerdict& verdict, Time now);
  void report_condition(const ConditionNews& news);

  const NodePorts& ports_;
  AttemptTable& attempts_;
  DeviceWatch& watch_;
  Reports& reports_;
  Endings& endings_;
  Time orphans_from_;
  DestroySlice destroy_slice_;
  std::map<uint32_t, std::vector<AttemptRow*>> holders_;
  std::map<Fence, Release> releases_;
  /// Releases that the scheduler waits for and that begin when no attempt has the device, or the share, any
  /// more.
  std::map<Fence, HeldDevice> awaited_;
  std::map<Fence, uint64_t> busy_reports_;  ///< Draining, for devices that a running attempt holds.
  std::map<uint32_t, uint64_t> condition_reports_;
};

}  // namespace gpusched::agent
