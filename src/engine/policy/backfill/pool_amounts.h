#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace gpusched::policy {

/// Most resources of one pool, such as GPUs, GPU memory, CPU, memory and attempts.
inline constexpr std::size_t kPoolResourcesMax = 8;

/// How much of each of a pool's resources. The meaning of an index is the caller's: `value[0]` may be GPUs
/// and `value[1]` megabytes. A pool is what one piece of work may be spread over freely: a set of nodes whose
/// fragmentation the caller looks at itself, or one node. A gang is one piece of work with its parts added
/// up. Resources that a pool does not have stay zero.
///
/// Example: with GPUs and megabytes, {2, 64000} fits into {4, 80000} and not into {8, 32000}: all resources
/// must fit at once, which is why one number of "size" would not do. Each operation costs O(1).
struct PoolAmounts {
  std::array<int64_t, kPoolResourcesMax> value{};

  /// True when no resource asks for more than `room` has. Room below zero (a pool that shrank) fits only what
  /// asks for nothing of that resource.
  constexpr bool fits(const PoolAmounts& room) const {
    for (std::size_t i = 0; i < kPoolResourcesMax; ++i) {
      if (value[i] > 0 && value[i] > room.value[i]) return false;
    }
    return true;
  }
  constexpr PoolAmounts& operator+=(const PoolAmounts& other) {
    for (std::size_t i = 0; i < kPoolResourcesMax; ++i) value[i] += other.value[i];
    return *this;
  }
  constexpr PoolAmounts& operator-=(const PoolAmounts& other) {
    for (std::size_t i = 0; i < kPoolResourcesMax; ++i) value[i] -= other.value[i];
    return *this;
  }
  friend constexpr PoolAmounts operator+(PoolAmounts a, const PoolAmounts& b) { return a += b; }
  friend constexpr PoolAmounts operator-(PoolAmounts a, const PoolAmounts& b) { return a -= b; }
  friend bool operator==(const PoolAmounts&, const PoolAmounts&) = default;
};

}  // namespace gpusched::policy
