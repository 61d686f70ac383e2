#include "provision/retry.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpusched::provision {

Duration backoff(int64_t failures, Duration base, Duration most, uint64_t random) {
  CHECK(failures > 0);
  CHECK(base.ns > 0 && base <= most);
  Duration pause = base;
  for (int64_t i = 1; i < failures && pause < most; ++i) pause = pause * 2;
  pause = std::min(pause, most);
  const int64_t half = pause.ns / 2;
  return Duration{pause.ns - half + static_cast<int64_t>(random % static_cast<uint64_t>(half + 1))};
}

bool RateLimit::take(Time now) {
  const Duration each{minutes(1).ns / per_minute_};
  // Full at `full_at_`; each call moves that by the time that one call takes to come back.
  const Time full_at = std::max(full_at_, now) + each;
  if (full_at - now > each * burst_) return false;
  full_at_ = full_at;
  return true;
}

bool Breaker::may_call(Time now) const {
  if (failures_ < limit_) return true;
  return now >= open_until_ && !trying_;
}

void Breaker::begin(Time now) {
  CHECK(may_call(now));
  if (failures_ >= limit_) trying_ = true;
}

void Breaker::succeeded() {
  failures_ = 0;
  trying_ = false;
  pause_ = first_;
}

void Breaker::failed(Time now) {
  ++failures_;
  if (failures_ < limit_) return;
  const bool again = std::exchange(trying_, false);
  if (again) pause_ = std::min(pause_ * 2, most_);
  if (again || failures_ == limit_) open_until_ = now + pause_;
}

}  // namespace gpusched::provision
