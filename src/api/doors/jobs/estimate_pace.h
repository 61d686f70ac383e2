#pragma once

#include <mutex>

#include "api/limits/token_bucket.h"
#include "host/core/system_clock.h"

namespace gpusched::api {

/// How many submissions a second are looked up again for how long they will wait. Beyond that they are
/// answered without it: an estimate is worth less than what it would cost then. Thread-safe.
class EstimatePace {
 public:
  bool take() {
    const std::lock_guard lock(mutex_);
    return !bucket_.take(kRate, SystemClock().monotonic());
  }

 private:
  static constexpr Rate kRate = {.per_second = 500, .burst = 500};
  std::mutex mutex_;
  TokenBucket bucket_;
};

}  // namespace gpusched::api
