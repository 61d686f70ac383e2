#include "provision/retry.h"

#include <gtest/gtest.h>

namespace gpusched::provision {
namespace {

constexpr Time kStart{1'000'000'000'000};

TEST(Backoff, DoublesUpToItsMostAndHalfOfItIsByChance) {
  for (const uint64_t random : {uint64_t{0}, uint64_t{12'345'678'901}, UINT64_MAX}) {
    Duration whole = seconds(1);
    for (int64_t failures = 1; failures < 80; ++failures) {
      const Duration pause = backoff(failures, seconds(1), minutes(5), random);
      EXPECT_GE(pause, Duration{whole.ns / 2}) << failures;
      EXPECT_LE(pause, whole) << failures;
      whole = std::min(whole * 2, minutes(5));
    }
  }
  EXPECT_NE(backoff(3, seconds(1), minutes(5), 1), backoff(3, seconds(1), minutes(5), 1'000'000'000));
}

TEST(RateLimit, LetsABurstThroughAndThenSoManyAMinute) {
  RateLimit limit(60, 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.take(kStart));
  EXPECT_FALSE(limit.take(kStart));
  EXPECT_FALSE(limit.take(kStart + milliseconds(900)));
  EXPECT_TRUE(limit.take(kStart + seconds(1)));
  EXPECT_FALSE(limit.take(kStart + seconds(1)));
  int taken = 0;
  for (int ms = 0; ms < 60'000; ms += 10)
    taken += limit.take(kStart + seconds(100) + milliseconds(ms)) ? 1 : 0;
  EXPECT_EQ(taken, 62);  // The burst, and 59 that came back until the last of these moments.
}

TEST(Breaker, OpensAfterFailuresInARowAndClosesWhenOneCallSucceeds) {
  Breaker breaker(3, seconds(30), minutes(2));
  for (int i = 0; i < 2; ++i) breaker.failed(kStart);
  breaker.succeeded();
  for (int i = 0; i < 2; ++i) breaker.failed(kStart);
  EXPECT_TRUE(breaker.may_call(kStart));
  breaker.failed(kStart);
  EXPECT_FALSE(breaker.may_call(kStart + seconds(29)));
  ASSERT_TRUE(breaker.may_call(kStart + seconds(30)));
  breaker.begin(kStart + seconds(30));
  EXPECT_FALSE(breaker.may_call(kStart + seconds(30)));  // One call tries, not many.
  breaker.failed(kStart + seconds(31));
  EXPECT_FALSE(breaker.may_call(kStart + seconds(90)));  // The pause doubled.
  ASSERT_TRUE(breaker.may_call(kStart + seconds(91)));
  breaker.begin(kStart + seconds(91));
  breaker.succeeded();
  EXPECT_TRUE(breaker.is_closed());
  EXPECT_TRUE(breaker.may_call(kStart + seconds(91)));
}

}  // namespace
}  // namespace gpusched::provision
