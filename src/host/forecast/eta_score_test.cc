#include "host/forecast/eta_score.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

constexpr Time kNow{1'000'000'000'000};

forecast::Forecast made(std::initializer_list<std::pair<uint64_t, forecast::Estimate>> jobs) {
  forecast::Forecast out{.at = kNow, .sequence = 1, .runs = 16, .jobs = {}};
  for (const auto& [job, estimate] : jobs) out.jobs.emplace(job, estimate);
  return out;
}
forecast::Estimate between(Duration p50, Duration p90) { return {.p50 = kNow + p50, .p90 = kNow + p90}; }

TEST(EtaScore, TheFirstEstimateOfAWaitIsScoredWhenTheJobIsPlaced) {
  EtaScore score;
  score.add(made({{1, between(minutes(10), minutes(20))}}));
  score.add(made({{1, between(minutes(1), minutes(2))}}));
  score.placed(JobId{1}, kDefaultTenant, kNow + minutes(15));
  EXPECT_EQ(score.totals().p50.count(), 1);
  EXPECT_EQ(score.totals().p50.covered_per_mille(), 0);
  EXPECT_EQ(score.totals().p90.covered_per_mille(), 1000);
  EXPECT_EQ(score.totals().error_sum_ms, minutes(5).ms());
  EXPECT_EQ(score.totals().errors[4], 1);  // At most 300 s.
  EXPECT_EQ(score.by_tenant().at(kDefaultTenant).p50.count(), 1);
  score.placed(JobId{1}, kDefaultTenant, kNow + minutes(30));
  EXPECT_EQ(score.totals().p50.count(), 1);
}

TEST(EtaScore, WhatStartsAtOnceOrIsUnknownOrWasChangedDoesNotCount) {
  EtaScore score;
  score.add(made({{1, {.p50 = kNow, .p90 = kNow}},
                  {2, {.p50 = kNow + seconds(1), .p90 = kNever}},
                  {3, between(seconds(5), seconds(9))}}));
  score.forget(JobId{3});
  for (const uint64_t job : {1, 2, 3}) score.placed(JobId{job}, kDefaultTenant, kNow + seconds(5));
  EXPECT_EQ(score.totals().p50.count(), 0);
}

TEST(EtaScore, TenantsBeyondTheBoundAreCountedTogether) {
  EtaScore score;
  for (uint64_t i = 1; i <= EtaScore::kTenantsMax + 5; ++i) {
    score.add(made({{i, between(seconds(5), seconds(9))}}));
    score.placed(JobId{i}, TenantId{i}, kNow + seconds(5));
  }
  EXPECT_EQ(score.by_tenant().size(), EtaScore::kTenantsMax + 1);
  EXPECT_EQ(score.by_tenant().at(TenantId{}).p50.count(), 5);
}

// Everybody waits three times as long as the runs said: soon that is what is told.
TEST(EtaScore, WhatIsToldFollowsWhatCameOfIt) {
  EtaScore score;
  for (uint64_t i = 1; i <= 400; ++i) {
    forecast::Forecast one = made({{i, between(minutes(10), minutes(20))}});
    score.add(one);
    score.placed(JobId{i}, kDefaultTenant, kNow + minutes(20 + static_cast<int64_t>(i % 20)));
  }
  EXPECT_GT(score.totals().p90.covered_per_mille(), 850);
  EXPECT_LT(score.totals().p90.covered_per_mille(), 950);
  forecast::Forecast next = made({{1000, between(minutes(10), minutes(20))},
                                  {1001, {.p50 = kNow, .p90 = kNow}},
                                  {1002, {.p50 = kNever, .p90 = kNever}},
                                  {1003, {.p50 = kNow + minutes(10), .p90 = kNever}}});
  score.calibrate(next);
  EXPECT_NEAR(static_cast<double>((next.find(JobId{1000})->p50 - kNow).ms()), 30 * 60e3, 60e3);
  EXPECT_NEAR(static_cast<double>((next.find(JobId{1000})->p90 - kNow).ms()), 38 * 60e3, 60e3);
  EXPECT_EQ(next.find(JobId{1001})->p90, kNow);
  EXPECT_EQ(next.find(JobId{1002})->p50, kNever);
  EXPECT_GT(next.find(JobId{1003})->p50, kNow + minutes(29));
  EXPECT_EQ(next.find(JobId{1003})->p90, kNever);
}

// The half of them must not be told a later time than nine tenths.
TEST(EtaScore, TheMedianIsNeverToldAfterTheNinth) {
  EtaScore score;
  for (uint64_t i = 1; i <= 100; ++i) {
    score.add(made({{i, between(seconds(1), hours(9))}}));
    score.placed(JobId{i}, kDefaultTenant, kNow + hours(1));
  }
  forecast::Forecast next = made({{1000, between(hours(1), hours(2))}});
  score.calibrate(next);
  EXPECT_GE(next.find(JobId{1000})->p90, next.find(JobId{1000})->p50);
}

}  // namespace
}  // namespace gpusched
