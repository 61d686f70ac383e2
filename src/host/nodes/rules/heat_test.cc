#include "host/nodes/rules/heat.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace gpusched {
namespace {

constexpr HeatLimits kLimits{.threshold_celsius = 75, .hysteresis_celsius = 5, .readings = 3};

/// The last answer to these readings; before it there must be none.
std::optional<HeatChange> look_at(HeatMeter& meter, const HeatLimits& limits,
                                  std::initializer_list<int32_t> readings, bool hot) {
  std::optional<HeatChange> last;
  for (const int32_t celsius : readings) {
    EXPECT_EQ(last, std::nullopt) << "before " << celsius << " C";
    last = meter.look(limits, celsius, hot);
  }
  return last;
}

TEST(Heat, EnoughReadingsAboveTheThresholdInARowMakeADeviceHotWithTheEvidence) {
  HeatMeter meter(0);
  EXPECT_EQ(look_at(meter, kLimits, {80, 81, 82}, false),
            (HeatChange{.hot = true, .detail = "82 C, threshold 75 C, cools until 70 C"}));
}

TEST(Heat, ASpikeDoesNothingAndTheThresholdItselfIsNotAboveIt) {
  HeatMeter meter(0);
  EXPECT_EQ(look_at(meter, kLimits, {90, 90, 60, 90, 90, 75, 90, 90}, false), std::nullopt);
}

TEST(Heat, AHotOneIsHotUntilItHasCooledBelowTheHysteresisForLongEnough) {
  HeatMeter meter(0);
  EXPECT_EQ(look_at(meter, kLimits, {74, 71, 71, 71, 71, 70, 69, 71, 70, 70}, true), std::nullopt);
  EXPECT_EQ(meter.look(kLimits, 70, true), HeatChange{.hot = false});
}

TEST(Heat, WhatIsNotYetTakenForHotIsSaidAgainAfterAsManyReadings) {
  HeatMeter meter(0);
  EXPECT_NE(look_at(meter, kLimits, {80, 80, 80}, false), std::nullopt);
  EXPECT_NE(look_at(meter, kLimits, {80, 80, 80}, false), std::nullopt);
}

TEST(Heat, ReadingsCountFromWhenTheDeviceWasTakenForSomethingElse) {
  HeatMeter meter(0);
  EXPECT_EQ(look_at(meter, kLimits, {80, 80}, false), std::nullopt);
  EXPECT_EQ(look_at(meter, kLimits, {60, 60}, true), std::nullopt);
  EXPECT_EQ(look_at(meter, kLimits, {80, 80}, false), std::nullopt);
}

TEST(Heat, WithoutAThresholdNothingIsHotAndWhatWasIsNoMore) {
  const HeatLimits off{.threshold_celsius = HeatLimits::kOff, .readings = 3};
  HeatMeter meter(0);
  EXPECT_EQ(look_at(meter, off, {150, 150, 150, 150}, false), std::nullopt);
  EXPECT_EQ(meter.look(off, 150, true), HeatChange{.hot = false});
}

TEST(Heat, AutoIsTheDevicesOwnSlowdownLimitLessAMargin) {
  const HeatLimits by_device{.threshold_celsius = HeatLimits::kAuto, .readings = 1, .auto_margin_celsius = 8};
  HeatMeter known(90);
  EXPECT_EQ(known.look(by_device, 82, false), std::nullopt);
  EXPECT_EQ(known.look(by_device, 83, false)->detail, "83 C, threshold 82 C, cools until 77 C");
  HeatMeter unknown(0);
  EXPECT_EQ(unknown.look(by_device, 76, false)->detail, "76 C, threshold 75 C, cools until 70 C");
}

TEST(Heat, ADriverThatDoesNotTellTheTemperatureReportsNoHeat) {
  HeatMeter meter(0);
  EXPECT_EQ(look_at(meter, kLimits, {0, 0, 0, 0}, false), std::nullopt);
}

}  // namespace
}  // namespace gpusched
