#include "node/watch/gpu_use_meter.h"

#include <algorithm>

namespace gpusched {

void GpuUseMeter::look(const std::vector<int32_t>& percents, Time now) {
  const Duration span = last_look_.valid() ? now - last_look_ : Duration{};
  last_look_ = now;
  for (const int32_t percent : percents) {
    watched_ = Duration{watched_.ns + span.ns};
    busy_ = Duration{busy_.ns + span.ns / 100 * std::clamp(percent, 0, 100)};
  }
}

}  // namespace gpusched
