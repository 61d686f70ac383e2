#include "forecast/calibration.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace gpusched::forecast {
namespace {

TEST(WaitCalibration, LeavesEstimatesAsTheyAreUntilEnoughIsKnown) {
  WaitCalibration calibration(900);
  for (std::size_t i = 0; i + 1 < WaitCalibration::kLeast; ++i) calibration.add(minutes(10), minutes(40));
  EXPECT_EQ(calibration.told(minutes(10)), minutes(10));
  calibration.add(minutes(10), minutes(40));
  EXPECT_GT(calibration.told(minutes(10)), minutes(39));
  EXPECT_EQ(calibration.told(Duration{}).ms(), 2996);  // 2401 s of 601 s, of one second, less that second.
}

TEST(WaitCalibration, SaysLessWhereWaitsWereShorter) {
  WaitCalibration calibration(900);
  for (int i = 0; i < 100; ++i) calibration.add(hours(1), i % 20 == 0 ? hours(1) : minutes(6));
  EXPECT_LT(calibration.told(hours(1)), minutes(7));
  EXPECT_GE(calibration.told(hours(1)), minutes(6));
}

TEST(WaitCalibration, ForgetsHowItWas) {
  WaitCalibration calibration(500);
  for (std::size_t i = 0; i < WaitCalibration::kWindow; ++i) calibration.add(hours(1), hours(5));
  for (std::size_t i = 0; i < WaitCalibration::kWindow; ++i) calibration.add(hours(1), hours(1));
  EXPECT_EQ(calibration.told(hours(1)), hours(1));
}

// Estimates of a world that is three times as slow as they say: afterwards nine of ten are covered.
TEST(WaitCalibration, CoversWhatItPromises) {
  Prng prng(5);
  WaitCalibration calibration(900);
  int covered = 0;
  constexpr int kAll = 20'000;
  for (int i = 0; i < kAll; ++i) {
    const Duration estimated = seconds(prng.between(1, 7'200));
    const Duration waited = milliseconds(estimated.ms() * prng.between(0, 3'000) / 1'000);
    if (waited <= calibration.told(estimated)) ++covered;
    calibration.add(estimated, waited);
  }
  EXPECT_GT(covered, kAll * 89 / 100);
  EXPECT_LT(covered, kAll * 91 / 100);
}

TEST(WaitCalibration, BearsAnyWait) {
  WaitCalibration calibration(900);
  for (int i = 0; i < 50; ++i) calibration.add(Duration{}, hours(24 * 365 * 50));
  EXPECT_GT(calibration.told(seconds(1)), seconds(1));
  EXPECT_GE(calibration.told(hours(24 * 365)), hours(24 * 365));
  for (int i = 0; i < 1000; ++i) calibration.add(hours(24 * 365 * 50), Duration{-5});
  EXPECT_EQ(calibration.told(hours(1)), Duration{});
}

}  // namespace
}  // namespace gpusched::forecast
