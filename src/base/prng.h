#pragma once

#include <cstdint>

#include "base/check.h"

namespace gpusched {

/// A seeded generator (SplitMix64: Steele, Lea, Flood 2014) for simulation, jitter and tests. The same seed
/// draws the same numbers on every machine. Not for secrets. Not thread-safe.
class Prng {
 public:
  explicit Prng(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound). `bound` > 0.
  uint64_t below(uint64_t bound) {
    CHECK(bound > 0);
    return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  /// Uniform in [low, high].
  int64_t between(int64_t low, int64_t high) {
    CHECK(low <= high);
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  /// True in `per_mille` of a thousand draws.
  bool chance(uint32_t per_mille) { return below(1000) < per_mille; }

 private:
  __extension__ using Wide = unsigned __int128;
  uint64_t state_;
};

}  // namespace gpusched
