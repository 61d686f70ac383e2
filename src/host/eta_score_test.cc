#include "host/eta_score.h"

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

}  // namespace
}  // namespace gpusched
