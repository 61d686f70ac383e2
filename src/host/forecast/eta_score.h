#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <map>

#include "base/ids.h"
#include "base/time.h"
#include "forecast/calibration.h"
#include "forecast/forecast.h"
#include "predict/quality.h"

namespace gpusched {

/// How good estimates of starts were: the first one of each wait of each job against when it was placed. Jobs
/// that were to start at once do not count, nor do those that were changed, held or ended meanwhile. What
/// came out calibrates what is told next (forecast::WaitCalibration). Not thread-safe.
class EtaScore {
 public:
  static constexpr std::size_t kJobsMax = 200'000;  ///< Jobs whose first estimate is remembered.
  static constexpr std::size_t kTenantsMax = 64;    ///< Counted for themselves; all others together.
  /// Upper bounds in seconds.
  static constexpr std::array<int64_t, 9> kBounds = {1, 5, 15, 60, 300, 900, 3'600, 14'400, 86'400};

  struct Totals {
    predict::QuantileScore p50{500};
    predict::QuantileScore p90{900};
    std::array<int64_t, kBounds.size() + 1> errors{};  ///< Distances from p50, by kBounds; not cumulative.
    int64_t error_sum_ms = 0;
    int64_t early_sum_ms = 0;  ///< Sum over those that were placed before p50.
  };

  /// Remembers the estimate of each job that has none yet: as it was made, and as it is told.
  void add(const forecast::Forecast& made);
  /// Turns estimates as they were made into what is told. A job that starts at once still does; turns stay as
  /// they are.
  void calibrate(forecast::Forecast& made) const;
  /// The job was placed; its estimate, if there is one, is scored.
  void placed(JobId job, TenantId tenant, Time at);
  /// The job is no longer what was estimated.
  void forget(JobId job) { first_.erase(job.value); }

  const Totals& totals() const { return totals_; }
  /// The first kTenantsMax; under no tenant all others.
  const std::map<TenantId, Totals>& by_tenant() const { return by_tenant_; }

 private:
  struct First {
    Time made_at, p50, p90;
    Duration raw_p50, raw_p90;  ///< From then on, before they were calibrated.
  };
  void calibrate(forecast::Estimate& estimate, Time made_at) const;
  static void score(Totals& totals, const First& first, Time at);

  boost::unordered_flat_map<uint64_t, First> first_;
  forecast::WaitCalibration calibration_p50_{500};
  forecast::WaitCalibration calibration_p90_{900};
  Totals totals_;
  std::map<TenantId, Totals> by_tenant_;
};

}  // namespace gpusched
