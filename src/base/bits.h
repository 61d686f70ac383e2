#pragma once

#include <cstdint>

namespace gpusched {

/// Returns the lowest `count` bits of the mask; all if it has fewer.
constexpr uint64_t lowest_bits(uint64_t mask, int32_t count) {
  uint64_t chosen = 0;
  for (; count > 0 && mask != 0; --count) {
    const uint64_t bit = mask & (~mask + 1);
    chosen |= bit;
    mask ^= bit;
  }
  return chosen;
}

}  // namespace gpusched
