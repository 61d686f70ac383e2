#include "engine/policy/backfill/overrun.h"

#include <gtest/gtest.h>

namespace gpusched::policy {
namespace {

TEST(Overrun, TheIncrementsCountFromTheFirstEstimate) {
  Overrun overrun{.first_estimate = minutes(10), .elapsed = minutes(10)};
  EXPECT_EQ(corrected_estimate(Correction::kTsafrir, overrun), minutes(11));
  overrun.elapsed = minutes(11);
  EXPECT_EQ(corrected_estimate(Correction::kTsafrir, overrun), minutes(15));
  overrun.elapsed = minutes(15);
  EXPECT_EQ(corrected_estimate(Correction::kTsafrir, overrun), minutes(25));
  EXPECT_EQ(overrun.corrections, 3u);
}

TEST(Overrun, NoCorrectionGoesBeyondTheLimit) {
  Overrun overrun{.first_estimate = minutes(10), .elapsed = minutes(10), .limit = seconds(620)};
  EXPECT_EQ(corrected_estimate(Correction::kTsafrir, overrun), seconds(620));
}

TEST(Overrun, WorkBeyondItsLimitIsStillThere) {
  Overrun overrun{.first_estimate = minutes(10), .elapsed = minutes(20), .limit = minutes(15)};
  EXPECT_EQ(corrected_estimate(Correction::kTsafrir, overrun), minutes(25));
  EXPECT_EQ(overrun.corrections, 3u);
}

TEST(Overrun, ToTheLimitAtOnce) {
  Overrun overrun{.first_estimate = minutes(10), .elapsed = minutes(10), .limit = hours(4)};
  EXPECT_EQ(corrected_estimate(Correction::kLimit, overrun), hours(4));
  overrun = {.first_estimate = minutes(10), .elapsed = hours(4), .limit = hours(4)};
  EXPECT_GT(corrected_estimate(Correction::kLimit, overrun), hours(4));
}

TEST(Overrun, TheTableNeverEnds) {
  Overrun overrun{.first_estimate = seconds(0), .elapsed = seconds(0)};
  for (int i = 0; i < 30; ++i) {
    const Duration estimate = corrected_estimate(Correction::kTsafrir, overrun);
    ASSERT_GT(estimate, overrun.elapsed);
    overrun.elapsed = estimate;
  }
  EXPECT_EQ(overrun.elapsed, hours(100) * 20);
}

}  // namespace
}  // namespace gpusched::policy
