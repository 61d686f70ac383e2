#pragma once

#include <cstdint>

#include "base/time.h"
#include "model/types.h"

namespace gpusched {

/// Exponential forgetting, in whole numbers so that every replica gets the same digits.

/// 2^-(elapsed / half_life) as a fraction of `kDecayOne`, to within 2^-36. `half_life` is positive.
inline constexpr int64_t kDecayOne = int64_t{1} << 40;
int64_t decay_factor(Duration elapsed, Duration half_life);

/// Usage of each resource by a tenant, older usage counting less: the integral over the past of
/// `usage(t) * 2^-(age / half_life)`, in units times milliseconds. Slurm's "decayed usage"; unlike it, never
/// settled by a timer but exactly, at each change.
struct DecayedUse {
  int64_t gpus = 0;
  int64_t gpu_memory_mb = 0;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  Time at;  ///< Until when it counts; none: nothing was counted yet.
  // Fractions of each below one, in 2^-20.
  int64_t gpus_part = 0;
  int64_t gpu_memory_mb_part = 0;
  int64_t cpu_milli_part = 0;
  int64_t memory_mb_part = 0;

  /// Counts `usage`, which was held since `at`, until `now`. Saturates instead of overflowing. Without
  /// `keeps_parts` what is less than one is lost each time, as old journals have it.
  void settle(const Amount& usage, Duration half_life, Time now, bool keeps_parts);
};

}  // namespace gpusched
