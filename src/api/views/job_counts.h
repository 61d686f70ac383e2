#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "api/contract/health.h"
#include "host/readers/observer.h"

namespace gpusched::api {

/// Counts what happens to jobs, for metrics. The observer's thread owns it.
class JobCounts {
 public:
  void observe(const Observer::View& view, const Changes& changes);
  void fill(MetricsView& metrics) const;
  /// Adds how many jobs were placed and what they had waited, by the tenant's name; `other` has the jobs of
  /// deleted tenants and of those beyond the first thousand.
  void fill_tenants(const State& state, MetricsView& metrics) const;

 private:
  void count_wait(const Job& job, Time placed);
  void count(JobState state) { entered_[static_cast<std::size_t>(state)] += 1; }
  struct Spread;
  static void count_in(Spread& spread, Duration span);

  static constexpr std::array<double, 13> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.5,   1,      5,     30,   300,   3600};
  std::array<int64_t, kJobStateCount> entered_{};
  struct Spread {
    std::array<int64_t, kBounds.size() + 1> buckets{};
    double sum = 0;
    int64_t count = 0;
  };
  struct Waits {
    int64_t count = 0;
    double seconds = 0;
  };
  static constexpr std::size_t kTenantsMax = 1'000;
  Spread latency_;
  Spread reclaims_;
  std::map<TenantId, Waits> waits_;  ///< Waits for first placements; those of other tenants under the id 0.
};

}  // namespace gpusched::api
