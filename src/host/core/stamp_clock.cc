#include "host/core/stamp_clock.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched {
namespace {

/// The first time that is one: zero means "not yet".
constexpr Time kFirst{1};

}  // namespace

StampClock::StampClock(const Clock& clock, Time last, Duration bound)
    : clock_(clock), bound_(bound), monotonic_(clock.monotonic()), at_(last) {
  CHECK(bound.ns >= 0);
  CHECK(last <= limits::kTimeMax);
  const Time wall = std::clamp(clock.wall(), kFirst, limits::kTimeMax);
  if (!last.valid() || is_near(wall - last, bound)) at_ = std::max(last, wall);
}

Time StampClock::now() {
  const Time monotonic = clock_.monotonic();
  CHECK(monotonic >= monotonic_);
  const Duration elapsed = monotonic - monotonic_;
  monotonic_ = monotonic;
  at_ = at_ + elapsed;
  const int64_t lean = elapsed.ns / 20;
  if (believes()) at_ = at_ + Duration{std::clamp(gap().ns, -lean, lean)};
  at_ = std::min(at_, limits::kTimeMax);
  return at_;
}

}  // namespace gpusched
