#include "host/nodes/rules/heat.h"

#include <algorithm>

namespace gpusched {

int32_t HeatLimits::threshold_of(int32_t slowdown_celsius) const {
  if (threshold_celsius != kAuto) return threshold_celsius;
  if (slowdown_celsius <= 0) return kWithoutLimitCelsius;
  return std::max(slowdown_celsius - auto_margin_celsius, 1);
}

std::optional<HeatChange> HeatMeter::look(const HeatLimits& limits, int32_t celsius, bool hot) {
  if (hot != taken_for_) against_ = 0;
  taken_for_ = hot;
  const int32_t threshold = limits.threshold_of(slowdown_celsius_);
  if (threshold == HeatLimits::kOff) {
    if (!hot) return std::nullopt;
    return HeatChange{.hot = false};
  }
  const int32_t cool = std::max(threshold - limits.hysteresis_celsius, 0);
  const bool speaks_against = hot ? celsius <= cool : celsius > threshold;
  against_ = speaks_against ? against_ + 1 : 0;
  if (against_ < limits.readings) return std::nullopt;
  against_ = 0;
  if (hot) return HeatChange{.hot = false};
  return HeatChange{.hot = true,
                    .detail = std::to_string(celsius) + " C, threshold " + std::to_string(threshold) +
                              " C, cools until " + std::to_string(cool) + " C"};
}

}  // namespace gpusched
