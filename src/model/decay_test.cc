#include "model/decay.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gpusched {
namespace {

TEST(DecayFactor, HalvesWithEachHalfLife) {
  const Duration half_life = hours(24 * 7);
  EXPECT_EQ(decay_factor({}, half_life), kDecayOne);
  EXPECT_NEAR(static_cast<double>(decay_factor(half_life, half_life)), std::ldexp(1.0, 39), 4);
  EXPECT_NEAR(static_cast<double>(decay_factor(half_life * 10, half_life)), std::ldexp(1.0, 30), 4);
  EXPECT_EQ(decay_factor(half_life * 40, half_life), 0);
}

TEST(DecayFactor, FollowsTheExponentialInBetween) {
  for (int i = 0; i < 1000; ++i) {
    const double x = i * 0.0037;
    const auto elapsed = Duration{static_cast<int64_t>(x * 3.6e12)};
    const double factor = static_cast<double>(decay_factor(elapsed, hours(1))) / std::ldexp(1.0, 40);
    EXPECT_NEAR(factor, std::exp2(-x), 1e-9) << x;
  }
}

TEST(DecayedUse, OfConstantUseTendsToTheSpanOfTheHalfLife) {
  DecayedUse use;
  const Amount usage{.gpus = 8};
  const Time start = Time{} + hours(1);
  use.settle(usage, hours(1), start, false);
  EXPECT_EQ(use.gpus, 0);
  for (int i = 1; i <= 24 * 60; ++i) use.settle(usage, hours(1), start + minutes(i), false);
  // 8 GPUs times an hour divided by ln 2.
  EXPECT_NEAR(static_cast<double>(use.gpus), 8 * 3'600'000 / std::log(2.0), 2000);
}

TEST(DecayedUse, DoesNotDependOnHowOftenItIsSettled) {
  DecayedUse often;
  DecayedUse once;
  const Amount usage{.gpus = 100, .gpu_memory_mb = 8'000'000, .cpu_milli = 1'000'000, .memory_mb = 9'000'000};
  const Time start = Time{} + hours(1);
  often.settle(usage, hours(24), start, false);
  once.settle(usage, hours(24), start, false);
  for (int i = 1; i <= 3000; ++i) often.settle(usage, hours(24), start + seconds(i), false);
  once.settle(usage, hours(24), start + seconds(3000), false);
  EXPECT_NEAR(static_cast<double>(often.gpus), static_cast<double>(once.gpus), 6001);
  EXPECT_NEAR(static_cast<double>(often.memory_mb), static_cast<double>(once.memory_mb),
              1e-7 * static_cast<double>(once.memory_mb));
}

TEST(DecayedUse, IsForgottenWhenNothingIsUsed) {
  DecayedUse use;
  const Time start = Time{} + hours(1);
  use.settle({.gpus = 4}, hours(1), start, false);
  use.settle({.gpus = 4}, hours(1), start + hours(1), false);
  const int64_t before = use.gpus;
  use.settle({}, hours(1), start + hours(2), false);
  EXPECT_NEAR(static_cast<double>(use.gpus), static_cast<double>(before) / 2, 2);
  use.settle({}, hours(1), start + hours(200), false);
  EXPECT_EQ(use.gpus, 0);
}

TEST(DecayedUse, SaturatesInsteadOfOverflowing) {
  DecayedUse use;
  const Time start = Time{} + hours(1);
  const Amount usage{.memory_mb = int64_t{1} << 50};
  use.settle(usage, hours(24 * 366 * 50), start, false);
  use.settle(usage, hours(24 * 366 * 50), start + hours(24 * 366 * 20), false);
  EXPECT_EQ(use.memory_mb, INT64_MAX);
}

TEST(DecayedUse, WhatIsLessThanOneAddsUpHoweverOftenItIsSettled) {
  const Amount share{.gpu_milli = 999};
  DecayedUse often;
  DecayedUse once;
  DecayedUse lossy;
  const Time start = Time{} + seconds(1'700'000'000);
  for (DecayedUse* use : {&often, &once, &lossy}) use->settle(share, hours(24), start, true);
  for (int i = 1; i <= 10'000; ++i) {
    often.settle(share, hours(24), start + milliseconds(i), true);
    lossy.settle(share, hours(24), start + milliseconds(i), false);
  }
  once.settle(share, hours(24), start + milliseconds(10'000), true);
  EXPECT_NEAR(static_cast<double>(often.gpus), static_cast<double>(once.gpus), 2);
  EXPECT_EQ(lossy.gpus, 0);  // As old journals have it.
}

}  // namespace
}  // namespace gpusched
