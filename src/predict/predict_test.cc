#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "predict/baselines.h"
#include "predict/fixed_log.h"
#include "predict/learned.h"
#include "predict/quality.h"

namespace gpusched::predict {
namespace {

constexpr int64_t kHour = 3'600'000;
constexpr int64_t kMinute = 60'000;

TEST(FixedLog, RisesAndComesBack) {
  EXPECT_EQ(log2_q8(0), 0);
  EXPECT_EQ(log2_q8(1), 0);
  EXPECT_EQ(log2_q8(1024), 10 * 256);
  EXPECT_EQ(log2_q8(3 * 512), 10 * 256 + 128);
  int32_t last = 0;
  for (uint64_t value = 1; value < uint64_t{1} << 45; value += 1 + value / 7) {
    const int32_t log = log2_q8(value);
    ASSERT_GE(log, last);
    last = log;
    ASSERT_LE(exp2_q8(log), value);
    ASSERT_GE(exp2_q8(log) + exp2_q8(log) / 200 + 1, value);
  }
}

TEST(RunTimes, QuantilesFollowTheWeights) {
  const RunTimes times =
      RunTimes::of({{.run_ms = 30, .weight = 1}, {.run_ms = 10, .weight = 6}, {.run_ms = 20, .weight = 3}});
  EXPECT_EQ(times.quantile_ms(0), 10);
  EXPECT_EQ(times.quantile_ms(600), 10);
  EXPECT_EQ(times.quantile_ms(601), 20);
  EXPECT_EQ(times.quantile_ms(900), 20);
  EXPECT_EQ(times.quantile_ms(1000), 30);
  EXPECT_EQ(times.per_mille_longer_than(10), 400);
}

TEST(RunTimes, WhatItHasRunAlreadyShiftsThePrediction) {
  const RunTimes times =
      RunTimes::of({{.run_ms = 10, .weight = 8}, {.run_ms = 50, .weight = 1}, {.run_ms = 90, .weight = 1}});
  EXPECT_EQ(times.quantile_ms(500), 10);
  EXPECT_EQ(times.quantile_after_ms(10, 500), 50);
  EXPECT_EQ(times.quantile_after_ms(50, 500), 90);
  EXPECT_EQ(times.quantile_after_ms(90, 500), std::nullopt);
}

TEST(RunTimes, TypicalIsTheMeanOfLogarithms) {
  const RunTimes times = RunTimes::of({{.run_ms = 1023, .weight = 1}, {.run_ms = 65'535, .weight = 1}});
  EXPECT_EQ(times.typical_ms(1), 8191);
}

TEST(RunTimes, LongRunsDominateTheMean) {
  const RunTimes times = RunTimes::of({{.run_ms = 10, .weight = 3}, {.run_ms = 1010, .weight = 1}});
  EXPECT_EQ(times.mean_ms(), 260);
  EXPECT_EQ(RunTimes().mean_ms(), 0);
}

TEST(RunTimes, QuantilesNeverFallAsTheShareRises) {
  Prng prng(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<RunTimes::Sample> samples;
    for (uint64_t i = 0; i < 1 + prng.below(40); ++i) {
      samples.push_back({.run_ms = prng.between(0, 1000), .weight = prng.below(uint64_t{1} << 43)});
    }
    samples.push_back({.run_ms = 500, .weight = 1});
    const RunTimes times = RunTimes::of(samples);
    int64_t last = 0;
    for (int32_t share = 0; share <= 1000; share += 50) {
      ASSERT_GE(times.quantile_ms(share), last);
      last = times.quantile_ms(share);
      const std::optional<int64_t> after = times.quantile_after_ms(400, share);
      ASSERT_TRUE(after.has_value());
      ASSERT_GT(*after, 400);
      ASSERT_GE(*after, times.quantile_ms(share));
    }
  }
}

TEST(LastTwo, TheMeanOfTheLastTwoWithinTheLimit) {
  LastTwo last_two(1000);
  const JobFacts facts{.job = 9, .user = 4, .limit_ms = kHour};
  EXPECT_EQ(last_two.predict(facts, 0).quantile_ms(500), kHour);
  last_two.finished(facts, 10'000, 0);
  EXPECT_EQ(last_two.predict(facts, 0).quantile_ms(500), kHour);  // One is not two.
  last_two.finished(facts, 13'000, 0);
  EXPECT_EQ(last_two.predict(facts, 0).quantile_ms(500), 11'000);
  last_two.finished(facts, 16 * kHour, 0);
  EXPECT_EQ(last_two.predict(facts, 0).quantile_ms(500), kHour);
  EXPECT_EQ(last_two.predict({.user = 5, .limit_ms = 7}, 0).quantile_ms(500), 7);
}

TEST(Learned, KnowsNothingAtFirstButTheLimit) {
  const Learned learned;
  EXPECT_EQ(learned.predict({.user = 1, .limit_ms = kHour}, 0).quantile_ms(500), kHour);
  EXPECT_TRUE(learned.predict({.user = 1}, 0).empty());
}

TEST(Learned, AUsersKindsOfJobsAreToldApart) {
  Learned learned;
  const JobFacts small{.user = 1, .size = 1, .limit_ms = kHour};
  const JobFacts large{.user = 1, .size = 64, .limit_ms = 24 * kHour};
  for (int i = 0; i < 20; ++i) {
    learned.finished(small, 30'000, 0);
    learned.finished(large, 10 * kHour, 0);
  }
  EXPECT_EQ(learned.predict(small, 0).quantile_ms(500), 30'000);
  EXPECT_EQ(learned.predict(large, 0).quantile_ms(500), 10 * kHour);
  // Nobody knows this user: everybody's share of such limits speaks.
  EXPECT_EQ(learned.predict({.user = 2, .size = 1, .limit_ms = kHour}, 0).quantile_ms(500), 30'000);
}

TEST(Learned, ANamedCommandIsKnownFromOtherUsers) {
  Learned learned;
  const JobFacts known{.user = 1, .name = 77, .shape = 5, .size = 8};
  for (int i = 0; i < 10; ++i) learned.finished(known, 2 * kHour, 0);
  for (int i = 0; i < 40; ++i) learned.finished({.user = 3, .size = 8}, kMinute, 0);
  JobFacts facts = known;
  facts.user = 2;
  EXPECT_EQ(learned.predict(facts, 0).quantile_ms(500), 2 * kHour);
  facts.name = 78;
  EXPECT_EQ(learned.predict(facts, 0).quantile_ms(500), kMinute);
}

TEST(Learned, ChangedHabitsAreForgotten) {
  Learned learned;
  const JobFacts facts{.user = 1, .size = 4, .limit_ms = 24 * kHour};
  for (int i = 0; i < 200; ++i) learned.finished(facts, 5 * kHour, 0);
  int runs = 0;
  while (learned.predict(facts, 0).quantile_ms(500) > kHour) {
    learned.finished(facts, kMinute, 0);
    ASSERT_LT(++runs, 20);
  }
  EXPECT_GT(runs, 1);  // One odd run is no change of habits.
}

TEST(Learned, WhatStillRunsSpeaksForLongRuns) {
  Learned learned;
  const JobFacts facts{.user = 1, .size = 4, .limit_ms = 24 * kHour};
  for (int i = 0; i < 4; ++i) {
    learned.finished(facts, 20 * kHour, 0);
    learned.finished(facts, kMinute, 0);
    learned.finished(facts, kMinute, 0);
  }
  const int64_t before = learned.predict(facts, 0).quantile_ms(500);
  EXPECT_EQ(before, kMinute);
  JobFacts running = facts;
  for (uint64_t i = 1; i <= 12; ++i) {
    running.job = i;
    learned.started(running, 0);
  }
  EXPECT_EQ(learned.predict(facts, 2 * kHour).quantile_ms(500), 20 * kHour);
  for (uint64_t i = 1; i <= 12; ++i) {
    running.job = i;
    learned.left(running);
  }
  EXPECT_EQ(learned.predict(facts, 2 * kHour).quantile_ms(500), before);
}

TEST(Learned, NothingIsPredictedBeyondTheLimit) {
  Prng prng(8);
  Learned learned;
  for (uint64_t id = 1; id < 3'000; ++id) {
    const JobFacts facts{.job = id,
                         .user = prng.below(20),
                         .name = prng.below(5),
                         .size = prng.between(1, 64),
                         .limit_ms = prng.chance(200) ? 0 : prng.between(1, 48 * kHour)};
    learned.started(facts, static_cast<int64_t>(id));
    const RunTimes times = learned.predict(facts, static_cast<int64_t>(id));
    for (const RunTimes::Sample& sample : times.samples()) {
      ASSERT_GE(sample.run_ms, 0);
      ASSERT_TRUE(facts.limit_ms == 0 || sample.run_ms <= facts.limit_ms);
    }
    if (prng.chance(800)) learned.finished(facts, prng.between(0, 48 * kHour), static_cast<int64_t>(id));
  }
}

TEST(Learned, MemoryIsBoundedByTheLinesAndTheNewestStay) {
  Learned learned(Learned::Options{.lines_max = 10, .crowd_window = 0});
  for (uint64_t user = 1; user <= 1'000; ++user) {
    learned.finished({.user = user}, static_cast<int64_t>(user), 0);
  }
  EXPECT_TRUE(learned.predict({.user = 1}, 0).empty());
  EXPECT_TRUE(learned.predict({.user = 990}, 0).empty());
  for (uint64_t user = 991; user <= 1'000; ++user) {
    EXPECT_EQ(learned.predict({.user = user}, 0).quantile_ms(500), static_cast<int64_t>(user));
  }
}

TEST(Learned, TheSameCallsGiveTheSameAnswers) {
  const auto answers = [] {
    Prng prng(4);
    Learned learned(Learned::Options{.lines_max = 8});
    std::vector<int64_t> said;
    for (uint64_t id = 1; id < 2'000; ++id) {
      const JobFacts facts{
          .job = id, .user = 1 + prng.below(20), .size = prng.between(1, 8), .limit_ms = kHour};
      said.push_back(learned.predict(facts, 0).quantile_ms(900));
      learned.started(facts, 0);
      learned.finished(facts, prng.between(0, kHour), 0);
    }
    return said;
  };
  EXPECT_EQ(answers(), answers());
}

TEST(QuantileScore, TheTrueQuantileHasTheLeastLoss) {
  QuantileScore low(900);
  QuantileScore right(900);
  QuantileScore high(900);
  for (int64_t run = 1; run <= 1000; ++run) {
    low.add(500'000, run * 1000);
    right.add(900'000, run * 1000);
    high.add(1'000'000, run * 1000);
  }
  EXPECT_EQ(right.covered_per_mille(), 900);
  EXPECT_EQ(low.covered_per_mille(), 500);
  EXPECT_LT(right.pinball_ms(), low.pinball_ms());
  EXPECT_LT(right.pinball_ms(), high.pinball_ms());
}

TEST(Calibration, HoldsItsTargetWhenThePredictorIsWrong) {
  Prng prng(6);
  Calibration calibration(900);
  int covered = 0;
  // The predictor believes in 0 .. 100; the truth is 0 .. 120.
  for (int i = 0; i < 5'000; ++i) {
    const int64_t predicted = calibration.level_per_mille() / 10;
    const bool within = prng.between(0, 105) <= predicted;
    covered += within ? 1 : 0;
    calibration.add(within);
  }
  EXPECT_NEAR(covered / 5'000.0, 0.9, 0.01);
}

}  // namespace
}  // namespace gpusched::predict
