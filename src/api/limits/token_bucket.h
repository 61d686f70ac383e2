#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace gpusched::api {

/// How often something may be done.
struct Rate {
  double per_second = 0;  ///< 0: without limit.
  double burst = 0;       ///< At once; at least 1. 0: a second's worth.

  bool is_limited() const { return per_second > 0; }
  double most() const { return std::max(1.0, burst > 0 ? burst : per_second); }
};

/// The rest of a rate. A new one is full. Not thread-safe.
class TokenBucket {
 public:
  /// Takes one, or says how long until there is one. Times are of a clock that never goes back.
  std::optional<Duration> take(const Rate& rate, Time now) {
    fill(rate, now);
    if (left_ < 1) return wait(rate);
    left_ -= 1;
    return std::nullopt;
  }
  /// How long until there is one; nothing: there is.
  std::optional<Duration> look(const Rate& rate, Time now) {
    fill(rate, now);
    return left_ < 1 ? std::optional(wait(rate)) : std::nullopt;
  }

 private:
  void fill(const Rate& rate, Time now) {
    if (!filled_at_) {
      left_ = rate.most();
    } else if (now > *filled_at_) {
      left_ =
          std::min(rate.most(), left_ + static_cast<double>((now - *filled_at_).ns) * 1e-9 * rate.per_second);
    }
    filled_at_ = std::max(filled_at_.value_or(now), now);
  }
  Duration wait(const Rate& rate) const {
    return Duration{static_cast<int64_t>((1 - left_) / rate.per_second * 1e9)};
  }

  double left_ = 0;
  std::optional<Time> filled_at_;
};

}  // namespace gpusched::api
