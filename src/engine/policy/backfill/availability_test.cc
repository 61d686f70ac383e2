#include "engine/policy/backfill/availability.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "engine/testing/pool_amounts.h"

namespace gpusched::policy {
namespace {

using testing::amounts;

TEST(Availability, RunningWorkIsGivenBackAtItsEstimatedEnd) {
  ReleaseTimeline running;
  running.add({.end = Time{10}, .id = 1, .amounts = amounts(4)});
  running.add({.end = Time{3}, .id = 2, .amounts = amounts(1)});
  const Availability profile(amounts(6), running, Time{5});
  ASSERT_EQ(profile.steps().size(), 2u);
  EXPECT_EQ(profile.steps()[0].free, amounts(2));
  EXPECT_EQ(profile.steps()[1].from, Time{10});
  EXPECT_EQ(profile.steps()[1].free, amounts(6));
}

TEST(Availability, AHoleMustBeLongEnough) {
  const ReleaseTimeline nothing;
  Availability profile(amounts(4), nothing, Time{0});
  profile.take(Time{0}, Time{10}, amounts(4));
  profile.take(Time{15}, Time{30}, amounts(3));
  EXPECT_EQ(profile.earliest_fit(Time{0}, Duration{5}, amounts(2)), Time{10});
  EXPECT_EQ(profile.earliest_fit(Time{0}, Duration{6}, amounts(2)), Time{30});
  EXPECT_EQ(profile.earliest_fit(Time{0}, Duration{6}, amounts(1)), Time{10});
  EXPECT_EQ(profile.earliest_fit(Time{12}, Duration{3}, amounts(2)), Time{12});
  EXPECT_EQ(profile.earliest_fit(Time{0}, Duration{1}, amounts(5)), kNever);
}

TEST(Availability, GivingBackWhatWasTakenLeavesNoTrace) {
  const ReleaseTimeline nothing;
  Availability profile(amounts(4), nothing, Time{0});
  profile.take(Time{5}, Time{9}, amounts(2));
  profile.take(Time{7}, kNever, amounts(1));
  profile.give(Time{7}, kNever, amounts(1));
  profile.give(Time{5}, Time{9}, amounts(2));
  EXPECT_EQ(profile.steps().size(), 1u);
}

TEST(Availability, AgreesWithAnArrayOfInstants) {
  constexpr int64_t kHorizon = 60;
  Prng prng(3);
  for (int round = 0; round < 300; ++round) {
    ReleaseTimeline running;
    std::vector<PoolAmounts> free(kHorizon + 40, amounts(10, 12));  // One for each instant.
    for (uint64_t id = 1; id <= prng.below(6); ++id) {
      const Release work{.end = Time{prng.between(1, kHorizon)},
                         .id = id,
                         .amounts = amounts(prng.between(0, 2), prng.between(0, 2))};
      running.add(work);
      for (int64_t t = 0; t < work.end.ns; ++t) free[t] -= work.amounts;
    }
    Availability profile(amounts(10, 12), running, Time{0});
    for (int step = 0; step < 20; ++step) {
      const PoolAmounts wanted = amounts(prng.between(0, 8), prng.between(0, 8));
      const int64_t length = prng.between(1, 30);
      const int64_t from = prng.between(0, kHorizon - 1);
      int64_t expected = from;
      for (int64_t t = from; t < expected + length && t < std::ssize(free); ++t) {
        if (!wanted.fits(free[t])) expected = t + 1;
      }
      const Time found = profile.earliest_fit(Time{from}, Duration{length}, wanted);
      ASSERT_EQ(found, Time{expected});
      ASSERT_TRUE(profile.fits(found, found + Duration{length}, wanted));
      if (expected > kHorizon) continue;
      profile.take(found, found + Duration{length}, wanted);
      for (int64_t t = expected; t < expected + length && t < std::ssize(free); ++t) free[t] -= wanted;
    }
  }
}

}  // namespace
}  // namespace gpusched::policy
