#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"

namespace gpusched {

/// How many jobs were placed in the last five minutes, for a rough estimate of a wait: place in line divided
/// by the rate of placements. An estimate of a moment, not a promise. Not thread-safe.
class StartRate {
 public:
  void add(Time now, uint64_t count) { slot(now) += count; }
  /// The wait of the job at `position` (1 is next); zero when nothing was placed lately.
  Duration wait(Time now, int64_t position) {
    slot(now);
    uint64_t total = 0;
    for (const uint64_t count : counts_) total += count;
    if (total == 0 || position <= 0) return {};
    const int64_t window_ms = kSlots * kSlotLength.ms();
    return milliseconds(static_cast<int64_t>(static_cast<double>(position) * static_cast<double>(window_ms) /
                                             static_cast<double>(total)));
  }

 private:
  static constexpr int64_t kSlots = 30;
  static constexpr Duration kSlotLength = seconds(10);

  uint64_t& slot(Time now) {
    const int64_t number = now.ns / kSlotLength.ns;
    if (number - newest_ >= kSlots) counts_.fill(0);
    for (; newest_ < number && number - newest_ < kSlots; ++newest_) {
      counts_[static_cast<std::size_t>((newest_ + 1) % kSlots)] = 0;
    }
    newest_ = number;
    return counts_[static_cast<std::size_t>(number % kSlots)];
  }

  std::array<uint64_t, kSlots> counts_{};
  int64_t newest_ = 0;
};

}  // namespace gpusched
