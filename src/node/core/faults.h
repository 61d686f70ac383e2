#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/attempts/endings.h"
#include "node/attempts/reports.h"
#include "node/core/release_fence.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"
#include "node/watch/fault_watch.h"

namespace gpusched::agent {

/// Standing faults of devices: told to the scheduler, repaired by a reset where that helps, and blamed for
/// the end of attempts that failed on them. The end of a failed attempt is put off for a moment, in which its
/// devices are looked at.
class Faults {
 public:
  /// `memory_text`: what FaultMemory gave; `rebooted`: since then.
  Faults(const NodePorts& ports, AttemptTable& attempts, DeviceWatch& watch, Reports& reports,
         ReleaseFence& fence, Endings& endings, FaultTable table, bool rebooted);

  /// The kernel's log tells an Xid of the device in this slot.
  void on_xid(const std::string& pci, uint32_t xid, const std::string& text);
  uint64_t log_position() const { return faults_.log_position(); }
  void set_log_position(uint64_t position) { faults_.set_log_position(position); }

  void report_news();
  /// The scheduler places nothing on it any more. All that stands since then is still to be told.
  void on_acked(const v1::DeviceFault& fault) { known_[fault.index()] = fault.id(); }
  void on_clear(const v1::ClearFault& order);
  void on_device_reset(uint32_t index, const std::string& problem);

  /// True: the attempt failed, and ends when its devices were looked at.
  bool examine(AttemptRow& attempt, const v1::Outcome& outcome);
  /// Ends the attempts whose devices were looked at, or took too long.
  void end_examined();

 private:
  struct Reset {
    int64_t id = 0;  ///< The word that it was for.
    bool running = false;
  };
  void take_readings();
  void note_daemons(uint32_t index);
  void reset_devices();
  v1::Outcome blame_device(const AttemptRow& attempt, const v1::Outcome& outcome);

  const NodePorts& ports_;
  AttemptTable& attempts_;
  DeviceWatch& watch_;
  Reports& reports_;
  ReleaseFence& fence_;
  Endings& endings_;
  FaultWatch faults_;
  std::map<uint32_t, std::string> daemons_told_;  ///< By device, as the others.
  std::map<uint32_t, uint64_t> fault_reports_;
  std::map<uint32_t, int64_t> known_;  ///< Word on each device that the scheduler has, as it said last.
  std::map<uint32_t, Reset> resets_;
};

}  // namespace gpusched::agent
