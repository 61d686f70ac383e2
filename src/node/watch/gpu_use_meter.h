#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace gpusched {

/// How busy the GPUs of one running attempt were, by the readings that this agent saw. Each reading stands
/// for the time since the look before. Not thread-safe.
class GpuUseMeter {
 public:
  /// `percents`: one for each of its GPUs whose reading is current and tells how busy it is.
  void look(const std::vector<int32_t>& percents, Time now);

  /// Time for which GPUs were watched, added up over them.
  int64_t watched_ms() const { return watched_.ms(); }
  /// Part of `watched_ms` in which they were busy.
  int64_t busy_ms() const { return busy_.ms(); }

 private:
  Time last_look_;
  Duration watched_;
  Duration busy_;
};

}  // namespace gpusched
