#pragma once

#include <cstdint>

#include "base/time.h"

/// When to call somebody again who may be down or overloaded. Pure values; times on one monotonic clock; not
/// thread-safe.
namespace gpusched::provision {

/// Pause before the next try after `failures` (1 or more) failures in a row: doubles from `base` up to
/// `most`, and of that a half is fixed and a half by chance (`random`, any number), so that many callers do
/// not come back together.
Duration backoff(int64_t failures, Duration base, Duration most, uint64_t random);

/// Token bucket: `burst` calls at once, then `per_minute`.
class RateLimit {
 public:
  RateLimit(int64_t per_minute, int64_t burst) : per_minute_(per_minute), burst_(burst) {}
  /// Takes a call; false: not now.
  bool take(Time now);

 private:
  int64_t per_minute_;
  int64_t burst_;
  Time full_at_;  ///< Time at which all of the burst is there again.
};

/// Circuit breaker: after `limit` failures in a row no call is made for a pause, which doubles; then a single
/// call tries, and its success closes it again.
class Breaker {
 public:
  Breaker(int64_t limit, Duration pause, Duration pause_most)
      : limit_(limit), first_(pause), most_(pause_most), pause_(pause) {}
  /// Whether a call may be made now. While it is half open, one is.
  bool may_call(Time now) const;
  /// A call that `may_call` allowed begins.
  void begin(Time now);
  void succeeded();
  void failed(Time now);
  bool is_open(Time now) const { return failures_ >= limit_ && now < open_until_; }
  bool is_closed() const { return failures_ < limit_; }

 private:
  int64_t limit_;
  Duration first_, most_, pause_;
  int64_t failures_ = 0;
  bool trying_ = false;  ///< The single call of the half-open state is under way.
  Time open_until_;
};

}  // namespace gpusched::provision
