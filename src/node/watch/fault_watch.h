#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "node/ports/ports.h"
#include "node/watch/gpu_faults.h"

namespace gpusched {

/// Keeps what stands against each device, through restarts of the agent: the gravest fault that it showed and
/// that nobody released. Not thread-safe; NodeCore owns it.
///
/// Faults that are only noted go by themselves when they were not seen for ten minutes. One that means a
/// reset goes with the reset, and with a restart of the machine. Numbers that drivers count go on being
/// counted after a release: only what is new then counts.
class FaultWatch {
 public:
  struct Standing {
    FaultRule rule = FaultRule::kIgnore;  ///< kIgnore: nothing stands.
    std::string code;
    std::string detail;
    int64_t id = 0;  ///< Number of the last report about this device; differs from all before it.

    bool bars() const { return rule >= FaultRule::kDrain; }
  };

  /// `remembered`: what `text` gave last; what cannot be read of it is left out. `rebooted`: since then.
  FaultWatch(std::vector<std::string> uuids, FaultTable table, const std::string& remembered, bool rebooted,
             Time wall);

  void on_reading(uint32_t index, const DeviceReading& reading, Time now, Time wall);
  /// Notes a line of the kernel's log.
  void on_xid(uint32_t index, uint32_t xid, const std::string& text, Time now, Time wall);
  /// Notes that are old go.
  void tick(Time now, Time wall);
  /// The device was reset.
  void on_reset(uint32_t index, Time wall);
  /// More words to what stands.
  void amend(uint32_t index, const std::string& words, Time wall);
  /// An operator released it, having seen the word `id`. False: something else stands by now.
  bool clear(uint32_t index, int64_t id);

  const Standing& standing(uint32_t index) const { return devices_[index].standing; }
  /// How far the kernel's log was read, in the source's own count.
  uint64_t log_position() const { return log_position_; }
  void set_log_position(uint64_t position);

  /// Devices with a word that is not taken yet. At first those on which something stands.
  std::vector<uint32_t> take_news();
  /// Text to be remembered; nothing when it is the same as at the last call.
  std::optional<std::string> take_text();

 private:
  struct Watched {
    Standing standing;
    Time seen_at;              ///< The standing fault, last.
    bool known = false;        ///< `seen_at` is of this agent.
    int64_t ecc_now = 0;       ///< Last count.
    int64_t ecc_released = 0;  ///< Count at the last release.
    bool remap_pending_now = false, remap_pending_released = false;
    bool remap_failed_now = false, remap_failed_released = false;
    bool news = false;
  };
  void raise(uint32_t index, const std::string& code, const std::string& detail, Time now, Time wall);
  void settle(Watched& device, FaultRule rule, std::string code, std::string detail, Time wall);
  std::string text() const;
  void load(const std::string& text, bool rebooted, Time wall);

  std::vector<std::string> uuids_;
  FaultTable table_;
  std::vector<Watched> devices_;
  uint64_t log_position_ = 0;
  std::string told_;
  bool changed_ = false;
};

}  // namespace gpusched
