#include "api/http/request_meter.h"

#include <algorithm>

namespace gpusched::api {

void RequestMeter::count(int code, Clock::time_point began) {
  const std::chrono::nanoseconds took = Clock::now() - began;
  const double seconds = static_cast<double>(took.count()) / 1e9;
  const auto index = static_cast<std::size_t>(std::ranges::lower_bound(kBounds, seconds) - kBounds.begin());
  const auto known = static_cast<std::size_t>(std::clamp<int>(code, 0, kCodesMax - 1));
  answers_[known].fetch_add(1, std::memory_order_relaxed);
  buckets_[index].fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(static_cast<uint64_t>(took.count()), std::memory_order_relaxed);
}

}  // namespace gpusched::api
