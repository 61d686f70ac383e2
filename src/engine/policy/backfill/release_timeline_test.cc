#include "engine/policy/backfill/release_timeline.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"
#include "engine/testing/pool_amounts.h"

namespace gpusched::policy {
namespace {

using testing::amounts;

TEST(ReleaseTimeline, WorkCountsAsGoneAtItsEstimatedEnd) {
  ReleaseTimeline running;
  running.add({.end = Time{10}, .id = 1, .amounts = amounts(4)});
  running.add({.end = Time{20}, .id = 2, .amounts = amounts(3)});
  EXPECT_EQ(running.held_after(Time{9}), amounts(7));
  EXPECT_EQ(running.held_after(Time{10}), amounts(3));
  EXPECT_EQ(running.held_after(Time{20}), amounts(0));
}

TEST(ReleaseTimeline, ShadowIsTheFirstEndAtWhichAllResourcesSuffice) {
  ReleaseTimeline running;
  running.add({.end = Time{10}, .id = 1, .amounts = amounts(4, 0)});
  running.add({.end = Time{20}, .id = 2, .amounts = amounts(0, 8)});
  running.add({.end = Time{20}, .id = 3, .amounts = amounts(2, 0)});
  const Shadow shadow = running.shadow(amounts(6, 8), amounts(4, 1), Time{5});
  EXPECT_EQ(shadow.at, Time{20});
  EXPECT_EQ(shadow.free, amounts(6, 8));  // All that ends at that instant is back.
}

TEST(ReleaseTimeline, WhatFitsNowHasItsShadowNow) {
  ReleaseTimeline running;
  running.add({.end = Time{10}, .id = 1, .amounts = amounts(4)});
  const Shadow shadow = running.shadow(amounts(6), amounts(2), Time{5});
  EXPECT_EQ(shadow.at, Time{5});
  EXPECT_EQ(shadow.free, amounts(2));
}

TEST(ReleaseTimeline, MoreThanThePoolHasNeverFits) {
  ReleaseTimeline running;
  EXPECT_EQ(running.shadow(amounts(6), amounts(7), Time{5}).at, kNever);
}

TEST(ReleaseTimeline, AgreesWithASumOverEverythingUnderRandomChanges) {
  Prng prng(11);
  ReleaseTimeline running;
  std::map<std::pair<Time, uint64_t>, PoolAmounts> reference;
  const PoolAmounts capacity = amounts(40'000, 30'000);
  uint64_t id = 0;
  for (int round = 0; round < 6'000; ++round) {
    const uint64_t dice = prng.below(10);
    if (dice < 5 || reference.empty()) {
      const Release work{.end = Time{prng.between(1, 500)},
                         .id = ++id,
                         .amounts = amounts(prng.between(0, 9), prng.between(0, 9))};
      running.add(work);
      reference[{work.end, work.id}] = work.amounts;
    } else {
      auto victim = reference.lower_bound({Time{prng.between(1, 500)}, 0});
      if (victim == reference.end()) victim = reference.begin();
      const auto [key, held] = *victim;
      reference.erase(victim);
      if (dice < 8) {
        running.remove(key.first, key.second);
      } else {
        const Time end{prng.between(1, 500)};
        running.move(key.first, key.second, end);
        reference[{end, key.second}] = held;
      }
    }
    ASSERT_EQ(running.size(), reference.size());
    if (round % 20 != 0) continue;
    const Time now{prng.between(0, 520)};
    PoolAmounts held;
    for (const auto& [key, value] : reference) {
      if (key.first > now) held += value;
    }
    ASSERT_EQ(running.held_after(now), held);
    const PoolAmounts wanted = amounts(prng.between(0, 40'000), prng.between(0, 30'000));
    Time expected = now;
    PoolAmounts free = capacity - held;
    for (const auto& [key, value] : reference) {
      if (wanted.fits(free)) break;
      if (key.first <= now) continue;
      free += value;
      expected = key.first;
    }
    ASSERT_EQ(running.shadow(capacity, wanted, now).at, expected);
  }
}

}  // namespace
}  // namespace gpusched::policy
