#include "node/core/activity.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(ActivityWatch, CountsFromTheFirstLookAndAnewAfterEachChange) {
  ActivityWatch watch;
  const AttemptKey key{.job = JobId{1}, .attempt = 1};
  Time now{1'000'000'000};
  EXPECT_EQ(watch.look(key, {.idle = true, .mark = 5}, now).idle, Duration{});
  now = now + minutes(10);
  const auto later = watch.look(key, {.idle = true, .mark = 5}, now);
  EXPECT_EQ(later.idle, minutes(10));
  EXPECT_EQ(later.quiet, minutes(10));
  EXPECT_EQ(later.busy, Duration{});
  now = now + minutes(1);
  EXPECT_EQ(watch.look(key, {.busy = true, .mark = 6}, now).quiet, Duration{});
  now = now + minutes(1);
  const auto busy = watch.look(key, {.busy = true, .mark = 6, .over_mb = 7}, now);
  EXPECT_EQ(busy.busy, minutes(1));
  EXPECT_EQ(busy.quiet, minutes(1));
  EXPECT_EQ(busy.idle, Duration{});
  EXPECT_EQ(busy.over_mb, 7);
  EXPECT_EQ(busy.over, Duration{});
  now = now + seconds(30);
  EXPECT_EQ(watch.look(key, {.mark = 6, .over_mb = 9}, now).over, seconds(30));
  EXPECT_EQ(watch.look(key, {.mark = 6}, now).over, Duration{});
  watch.forget(key);
  EXPECT_EQ(watch.look(key, {.mark = 6}, now + hours(1)).quiet, Duration{});
}

TEST(ActivityWatch, AttemptsAreApart) {
  ActivityWatch watch;
  const AttemptKey one{.job = JobId{1}, .attempt = 1};
  const AttemptKey two{.job = JobId{1}, .attempt = 2};
  const Time now{1'000'000'000};
  watch.look(one, {.idle = true}, now);
  EXPECT_EQ(watch.look(two, {.idle = true}, now + hours(1)).idle, Duration{});
  EXPECT_EQ(watch.look(one, {.idle = true}, now + hours(1)).idle, hours(1));
}

}  // namespace
}  // namespace gpusched
