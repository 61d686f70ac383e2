#include "node/watch/activity_meter.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(ActivityMeter, CountsFromTheFirstLookAndAnewAfterEachChange) {
  ActivityMeter meter;
  Time now{1'000'000'000};
  EXPECT_EQ(meter.look({.idle = true, .mark = 5}, now).idle, Duration{});
  now = now + minutes(10);
  const auto later = meter.look({.idle = true, .mark = 5}, now);
  EXPECT_EQ(later.idle, minutes(10));
  EXPECT_EQ(later.quiet, minutes(10));
  EXPECT_EQ(later.busy, Duration{});
  now = now + minutes(1);
  EXPECT_EQ(meter.look({.busy = true, .mark = 6}, now).quiet, Duration{});
  now = now + minutes(1);
  const auto busy = meter.look({.busy = true, .mark = 6, .over_mb = 7}, now);
  EXPECT_EQ(busy.busy, minutes(1));
  EXPECT_EQ(busy.quiet, minutes(1));
  EXPECT_EQ(busy.idle, Duration{});
  EXPECT_EQ(busy.over_mb, 7);
  EXPECT_EQ(busy.over, Duration{});
  now = now + seconds(30);
  EXPECT_EQ(meter.look({.mark = 6, .over_mb = 9}, now).over, seconds(30));
  EXPECT_EQ(meter.look({.mark = 6}, now).over, Duration{});
  EXPECT_EQ(meter.look({.mark = 6}, now + hours(1)).quiet, minutes(1) + seconds(30) + hours(1));
}

}  // namespace
}  // namespace gpusched
