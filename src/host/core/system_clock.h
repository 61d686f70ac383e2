#pragma once

#include <ctime>

#include "base/time.h"

namespace gpusched {

/// The machine's clocks. Thread-safe.
class SystemClock final : public Clock {
 public:
  Time monotonic() const override { return read(CLOCK_MONOTONIC); }
  Time wall() const override { return read(CLOCK_REALTIME); }

 private:
  static Time read(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return {now.tv_sec * 1'000'000'000 + now.tv_nsec};
  }
};

inline Time wall_now() { return SystemClock().wall(); }
/// Never goes back; of this boot alone.
inline Time steady_now() { return SystemClock().monotonic(); }

}  // namespace gpusched
