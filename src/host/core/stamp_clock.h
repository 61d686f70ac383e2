#pragma once

#include <algorithm>

#include "base/limits.h"
#include "base/time.h"

namespace gpusched {

/// Makes the times of commands: they advance with the monotonic clock and lean towards the wall clock by at
/// most a twentieth of what elapsed, so that a step of the wall clock expires nothing. A wall clock that is
/// further away than `bound` is not believed: time goes on by the monotonic clock alone until the wall clock
/// comes near again, or an operator accepts it (`gpu-scheduler accept-clock`), which writes a record of that
/// time. No time is ever past limits::kTimeMax, which readers refuse. Not thread-safe.
class StampClock {
 public:
  /// Continues after `last`; not valid: nothing was ever stamped, and the wall clock is all there is. What
  /// passed while nobody ran has really passed, so a wall clock that is ahead by no more than `bound` is
  /// taken as it is.
  StampClock(const Clock& clock, Time last, Duration bound);

  /// Never goes back.
  Time now();

  /// Last time that `now` gave.
  Time last() const { return at_; }
  /// How far the wall clock is ahead of the times that are given; negative: behind them.
  Duration gap() const { return std::max(clock_.wall(), Time{}) - at_; }
  /// Whether the wall clock is believed.
  bool believes() const { return is_near(gap(), bound_); }

  /// Whether a wall clock that is `gap` ahead of the newest time, or behind it, is believed.
  static bool is_near(Duration gap, Duration bound) { return gap <= bound && Duration{} - bound <= gap; }

 private:
  const Clock& clock_;
  const Duration bound_;
  Time monotonic_;
  Time at_;
};

}  // namespace gpusched
