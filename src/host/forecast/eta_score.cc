#include "host/forecast/eta_score.h"

#include <algorithm>
#include <cstdlib>

namespace gpusched {

void EtaScore::calibrate(forecast::Estimate& estimate, Time made_at) const {
  if (estimate.p50 == kNever || estimate.p50 <= made_at) return;
  estimate.p50 = made_at + calibration_p50_.told(estimate.p50 - made_at);
  // Where only some runs say when, no share of it is told.
  if (estimate.p90 == kNever) return;
  estimate.p90 = std::max(estimate.p50, made_at + calibration_p90_.told(estimate.p90 - made_at));
}

void EtaScore::calibrate(forecast::Forecast& made) const {
  for (auto& [job, estimate] : made.jobs) calibrate(estimate, made.at);
}

void EtaScore::add(const forecast::Forecast& made) {
  for (const auto& [job, estimate] : made.jobs) {
    if (first_.size() >= kJobsMax) return;
    if (estimate.p90 == kNever || estimate.p50 <= made.at) continue;
    forecast::Estimate told = estimate;
    calibrate(told, made.at);
    first_.try_emplace(job, First{.made_at = made.at,
                                  .p50 = told.p50,
                                  .p90 = told.p90,
                                  .raw_p50 = estimate.p50 - made.at,
                                  .raw_p90 = estimate.p90 - made.at});
  }
}

void EtaScore::score(Totals& totals, const First& first, Time at) {
  const int64_t waited_ms = (at - first.made_at).ms();
  totals.p50.add((first.p50 - first.made_at).ms(), waited_ms);
  totals.p90.add((first.p90 - first.made_at).ms(), waited_ms);
  const int64_t late_ms = (at - first.p50).ms();
  totals.error_sum_ms += std::abs(late_ms);
  if (late_ms < 0) totals.early_sum_ms -= late_ms;
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), (std::abs(late_ms) + 999) / 1000);
  ++totals.errors[static_cast<std::size_t>(bound - kBounds.begin())];
}

void EtaScore::placed(JobId job, TenantId tenant, Time at) {
  const auto found = first_.find(job.value);
  if (found == first_.end()) return;
  const First first = found->second;
  first_.erase(found);
  if (at < first.made_at) return;
  calibration_p50_.add(first.raw_p50, at - first.made_at);
  calibration_p90_.add(first.raw_p90, at - first.made_at);
  score(totals_, first, at);
  const bool own = by_tenant_.contains(tenant) || by_tenant_.size() < kTenantsMax;
  score(by_tenant_[own ? tenant : TenantId{}], first, at);
}

}  // namespace gpusched
