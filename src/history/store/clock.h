#pragma once

#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace gpusched::history {

/// Monotonic.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline Time wall() {
  return Time{std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count()};
}

}  // namespace gpusched::history
