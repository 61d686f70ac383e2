#include "forecast/calibration.h"

#include <algorithm>

namespace gpusched::forecast {
namespace {

constexpr int64_t kWhole = 1'000'000;
/// A wait that was that many times as long says no more than "much longer". Bounds the products below, too.
constexpr int64_t kShareMax = 1'000 * kWhole;
constexpr Duration kWaitMax = hours(24 * 90);

int64_t bounded_ms(Duration wait) { return std::clamp(wait, Duration{}, kWaitMax).ms(); }

}  // namespace

void WaitCalibration::add(Duration estimated, Duration waited) {
  const int64_t slack_ms = kSlack.ms();
  const int64_t of_ms = bounded_ms(estimated) + slack_ms;
  // Rounded up, as what is told: what was covered is covered still.
  const int64_t share = std::min(((bounded_ms(waited) + slack_ms) * kWhole + of_ms - 1) / of_ms, kShareMax);
  factor_ = 0;
  if (shares_.size() < kWindow) return shares_.push_back(share);
  shares_[next_] = share;
  next_ = (next_ + 1) % kWindow;
}

int64_t WaitCalibration::factor() const {
  if (shares_.size() < kLeast) return kWhole;
  if (factor_ > 0) return factor_;
  // The next wait is one of n + 1 alike ones: it is not beyond the k-th of the n with probability k / (n +
  // 1).
  const std::size_t count = shares_.size();
  const std::size_t rank = (static_cast<std::size_t>(per_mille_) * (count + 1) + 999) / 1000;
  std::vector<int64_t> sorted = shares_;
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(rank, 1, count) - 1);
  std::nth_element(sorted.begin(), at, sorted.end());
  factor_ = *at;
  return factor_;
}

Duration WaitCalibration::told(Duration estimated) const {
  if (estimated > kWaitMax) return estimated;
  const int64_t slack_ms = kSlack.ms();
  const int64_t factor_now = factor();
  if (factor_now == kWhole) return estimated;
  const int64_t told_ms = ((bounded_ms(estimated) + slack_ms) * factor_now + kWhole - 1) / kWhole - slack_ms;
  return milliseconds(std::max<int64_t>(told_ms, 0));
}

}  // namespace gpusched::forecast
