#include "engine/policy/backfill/overrun.h"

#include <algorithm>
#include <array>

namespace gpusched::policy {
namespace {

constexpr std::array<Duration, 11> kIncrements = {minutes(1), minutes(5), minutes(15), minutes(30),
                                                  hours(1),   hours(2),   hours(5),    hours(10),
                                                  hours(20),  hours(50),  hours(100)};

}  // namespace

Duration tsafrir_increment(uint32_t correction) {
  return kIncrements[std::min<std::size_t>(correction, kIncrements.size() - 1)];
}

Duration corrected_estimate(Correction correction, Overrun& overrun) {
  const bool limit_ahead = overrun.limit > overrun.elapsed;
  if (correction == Correction::kLimit && limit_ahead) {
    overrun.corrections += 1;
    return overrun.limit;
  }
  Duration estimate = overrun.first_estimate;
  do {
    // Past the end of the table nobody knows anything: the last step again, from now on.
    const bool known = overrun.corrections < kIncrements.size();
    estimate = (known ? overrun.first_estimate : overrun.elapsed) + tsafrir_increment(overrun.corrections);
    if (overrun.corrections < UINT32_MAX) overrun.corrections += 1;
  } while (estimate <= overrun.elapsed);
  return limit_ahead ? std::min(estimate, overrun.limit) : estimate;
}

}  // namespace gpusched::policy
