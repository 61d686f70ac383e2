#pragma once

#include <ctime>

#include "base/time.h"

namespace gpusched {

/// The machine's clocks. Time goes on while it sleeps: what was said to the scheduler before is as old as
/// that.
class SystemClock final : public Clock {
 public:
  Time monotonic() const override { return read(CLOCK_BOOTTIME); }
  Time wall() const override { return read(CLOCK_REALTIME); }

 private:
  static Time read(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
  }
};

}  // namespace gpusched
