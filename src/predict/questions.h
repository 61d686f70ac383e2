#pragma once

#include <cstdint>

#include "base/time.h"

/// The quantiles of the expected run times, in thousandths, that answer questions: chosen on KTH-SP2, see
/// docs/policies.md. The scheduler and replays of traces use the same.
namespace gpusched::predict {

inline constexpr int32_t kToPass = 500;
/// Work whose limit is short may pass when it may be short: it cannot delay what is reserved by more than
/// that limit.
inline constexpr int32_t kToPassShort = 100;
inline constexpr Duration kShortLimit = hours(4);
inline constexpr int32_t kOfRunning = 900;
/// Quantile for deciding which job is shorter, in thousandths: as likely shorter as longer.
inline constexpr int32_t kToOrder = 500;

/// The quantile by which a job with this limit (zero: none) may pass others.
constexpr int32_t to_pass_per_mille(Duration limit) {
  return limit.ns > 0 && limit <= kShortLimit ? kToPassShort : kToPass;
}

}  // namespace gpusched::predict
