#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "base/time.h"

/// The clocks of a shim.
namespace gpusched::shim {

inline Time clock_now(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}
/// Counts while the machine sleeps, so that a promise to be dead after a silence holds.
inline Time boot_now() { return clock_now(CLOCK_BOOTTIME); }
inline Time wall_now() { return clock_now(CLOCK_REALTIME); }

inline timespec to_timespec(Duration span) {
  const int64_t ns = std::max<int64_t>(span.ns, 0);
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

}  // namespace gpusched::shim
