#pragma once

#include <algorithm>

#include "base/check.h"
#include "base/time.h"

namespace gpusched {

/// Makes the times of commands: they advance with the monotonic clock and lean towards the wall clock by at
/// most a twentieth of what elapsed, so that a step of the wall clock expires nothing. Not thread-safe.
class StampClock {
 public:
  /// Continues after `last`; what passed while nobody ran has really passed, so a wall clock that is ahead is
  /// taken as it is.
  StampClock(const Clock& clock, Time last)
      : clock_(clock), monotonic_(clock.monotonic()), at_(std::max(last, clock.wall())) {}

  /// Never goes back.
  Time now() {
    const Time monotonic = clock_.monotonic();
    CHECK(monotonic >= monotonic_);
    const Duration elapsed = monotonic - monotonic_;
    monotonic_ = monotonic;
    at_ = at_ + elapsed;
    const int64_t lean = elapsed.ns / 20;
    at_ = at_ + Duration{std::clamp((clock_.wall() - at_).ns, -lean, lean)};
    return at_;
  }

  /// What `now` last gave.
  Time last() const { return at_; }

 private:
  const Clock& clock_;
  Time monotonic_;
  Time at_;
};

}  // namespace gpusched
