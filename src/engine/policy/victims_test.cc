#include "engine/policy/victims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/prng.h"

namespace gpusched::policy {
namespace {

constexpr Time kNow = Time{} + hours(24 * 365 * 50);

/// Candidates on one node, all of them running.
class Candidates {
 public:
  void add(int32_t devices, Duration ran, Duration left = hours(1), Duration saved_ago = {},
           int64_t priority = 0) {
    Job& job = jobs_.emplace_back();
    Attempt& attempt = attempts_.emplace_back();
    attempt.started_at = kNow - ran;
    if (saved_ago.ns > 0) job.extras.set(&JobExtras::saved_at, kNow - saved_ago);
    views_.push_back({.job = &job,
                      .attempt = &attempt,
                      .devices = devices,
                      .cpu_milli = devices * 1000,
                      .gpus = devices,
                      .end = kNow + left,
                      .priority = priority});
  }
  const std::vector<VictimView>& views() const { return views_; }
  std::vector<uint32_t> choose(const Lack& lack) const {
    const auto choice = LeastLost(LeastLost::Params{}).choose(lack, views_, kNow);
    return choice.has_value() ? choice->chosen : std::vector<uint32_t>{};
  }

 private:
  std::deque<Job> jobs_;
  std::deque<Attempt> attempts_;
  std::vector<VictimView> views_;
};

using Chosen = std::vector<uint32_t>;

TEST(LeastLost, TakesWhoRanForTheShortestTime) {
  Candidates candidates;
  candidates.add(1, minutes(4));
  candidates.add(1, minutes(2));
  candidates.add(1, minutes(3));
  EXPECT_EQ(candidates.choose({.devices = 1}), (Chosen{1}));
  EXPECT_EQ(candidates.choose({.devices = 2}), (Chosen{1, 2}));
}

TEST(LeastLost, CountsWhatWasDoneSinceTheLastSave) {
  Candidates candidates;
  candidates.add(1, hours(9), hours(1), seconds(30));
  candidates.add(1, minutes(2));
  EXPECT_EQ(candidates.choose({.devices = 1}), (Chosen{0}));
}

TEST(LeastLost, KeepingSilentProtectsForLittle) {
  Candidates candidates;
  candidates.add(1, hours(9), hours(1), minutes(6));  // Says when it saves.
  candidates.add(1, hours(9));                        // Never does.
  EXPECT_EQ(candidates.choose({.devices = 1}), (Chosen{1}));
}

TEST(LeastLost, OfThoseThatKeepSilentTheYoungestGoes) {
  Candidates candidates;
  candidates.add(1, hours(9));
  candidates.add(1, hours(2));
  EXPECT_EQ(candidates.choose({.devices = 1}), (Chosen{1}));
}

TEST(LeastLost, OfEqualLossesWhoWouldEndLastGoes) {
  Candidates candidates;
  candidates.add(1, minutes(2), minutes(1));
  candidates.add(1, minutes(2), hours(1));
  EXPECT_EQ(candidates.choose({.devices = 1}), (Chosen{1}));
}

TEST(LeastLost, OfEqualCostsTheLowestPriorityGoes) {
  Candidates candidates;
  candidates.add(1, minutes(2), hours(1), {}, 7);
  candidates.add(1, minutes(2), hours(1), {}, 5);
  EXPECT_EQ(candidates.choose({.devices = 1}), (Chosen{1}));
}

TEST(LeastLost, WhatNobodyCanGiveEndsNobody) {
  Candidates candidates;
  candidates.add(2, minutes(2));
  EXPECT_TRUE(candidates.choose({.devices = 3}).empty());
  EXPECT_TRUE(candidates.choose({.devices = 1, .memory_mb = 1}).empty());
  EXPECT_TRUE(candidates.choose({}).empty());
}

class RandomVictims : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomVictims, TheySufficeAndNoneIsThereInVain) {
  Prng prng(GetParam());
  for (int round = 0; round < 300; ++round) {
    Candidates candidates;
    const uint64_t count = 1 + prng.below(16);
    int32_t all = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const auto devices = static_cast<int32_t>(prng.below(4));
      all += devices;
      candidates.add(devices, seconds(prng.between(1, 900)), seconds(prng.between(1, 900)),
                     seconds(prng.chance(500) ? prng.between(1, 900) : 0), prng.between(0, 3));
    }
    const auto wanted = static_cast<int32_t>(prng.between(1, 12));
    const Chosen chosen = candidates.choose({.devices = wanted});
    ASSERT_EQ(chosen.empty(), all < wanted);
    if (chosen.empty()) continue;
    int32_t got = 0;
    for (const uint32_t index : chosen) got += candidates.views()[index].devices;
    ASSERT_GE(got, wanted);
    for (const uint32_t index : chosen) ASSERT_LT(got - candidates.views()[index].devices, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomVictims, ::testing::Range<uint64_t>(1, 6));

}  // namespace
}  // namespace gpusched::policy
