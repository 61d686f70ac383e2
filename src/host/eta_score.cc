#include "host/eta_score.h"

#include <algorithm>
#include <cstdlib>

namespace gpusched {

void EtaScore::add(const forecast::Forecast& made) {
  for (const auto& [job, estimate] : made.jobs) {
    if (first_.size() >= kJobsMax) return;
    if (estimate.p90 == kNever || estimate.p50 <= made.at) continue;
    first_.try_emplace(job, First{.made_at = made.at, .p50 = estimate.p50, .p90 = estimate.p90});
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
  score(totals_, first, at);
  const bool own = by_tenant_.contains(tenant) || by_tenant_.size() < kTenantsMax;
  score(by_tenant_[own ? tenant : TenantId{}], first, at);
}

}  // namespace gpusched
