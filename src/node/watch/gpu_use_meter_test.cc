#include "node/watch/gpu_use_meter.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

constexpr Time kBegin = Time{} + seconds(1'000);

TEST(GpuUseMeter, KnowsNothingAfterOneLook) {
  GpuUseMeter meter;
  meter.look({90}, kBegin);
  EXPECT_EQ(meter.watched_ms(), 0);
  EXPECT_EQ(meter.busy_ms(), 0);
}

TEST(GpuUseMeter, AddsUpItsGpus) {
  GpuUseMeter meter;
  meter.look({0, 0}, kBegin);
  meter.look({100, 50}, kBegin + seconds(5));
  meter.look({20, 0}, kBegin + seconds(10));
  EXPECT_EQ(meter.watched_ms(), 20'000);
  EXPECT_EQ(meter.busy_ms(), 8'500);
}

TEST(GpuUseMeter, LeavesOutTimesWithoutAReading) {
  GpuUseMeter meter;
  meter.look({50}, kBegin);
  meter.look({}, kBegin + seconds(60));
  meter.look({50}, kBegin + seconds(62));
  EXPECT_EQ(meter.watched_ms(), 2'000);
  EXPECT_EQ(meter.busy_ms(), 1'000);
}

}  // namespace
}  // namespace gpusched
