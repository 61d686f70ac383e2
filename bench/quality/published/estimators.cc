#include "published/estimators.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "replay/scheduler/job_facts.h"

namespace gpusched::replay {
namespace {

Duration whole_seconds(int64_t ms) { return seconds(ms / 1000); }

}  // namespace

int64_t PredictedRuns::order_ms(const predict::RunTimes& times) const {
  constexpr int64_t kTypicalFloorMs = 10'000;
  switch (use_.order_by) {
    case OrderBy::kQuantile:
      return times.quantile_ms(use_.order_per_mille);
    case OrderBy::kMean:
      return times.mean_ms();
    case OrderBy::kTypical:
      return times.typical_ms(kTypicalFloorMs);
  }
  UNREACHABLE();
}

RunEstimate PredictedRuns::submitted(uint32_t job, const TraceJob& what, Duration now) {
  if (job >= known_.size()) known_.resize(job + 1);
  Known& known = known_[job];
  known.times = predictor_.predict(facts_of(job, what), now.ms());
  predicted(job, known.times);
  const auto bounded = [&](Duration estimate) { return std::max(estimate, use_.least); };
  RunEstimate estimate;
  estimate.order = whole_seconds(order_ms(known.times));
  const bool is_short = what.requested.ns > 0 && what.requested <= use_.short_limit;
  const int32_t hold_per_mille = is_short ? use_.short_hold_per_mille : use_.hold_per_mille;
  estimate.hold = bounded(whole_seconds(known.times.quantile_ms(hold_per_mille)));
  if (use_.running_per_mille > 0) {
    estimate.running = bounded(whole_seconds(known.times.quantile_ms(use_.running_per_mille)));
  }
  known.first_estimate = use_.running_per_mille > 0 ? estimate.running : estimate.hold;
  return estimate;
}

Duration PredictedRuns::ran_out(uint32_t job, const TraceJob& what, Duration /*estimate*/, Duration elapsed) {
  Known& known = known_[job];
  if (use_.again_per_mille > 0 && !known.asked_again) {
    known.asked_again = true;
    const std::optional<int64_t> longer =
        known.times.quantile_after_ms(elapsed.ms() + 999, use_.again_per_mille);
    if (longer) {
      known.first_estimate = whole_seconds(*longer);
      return known.first_estimate;
    }
  }
  policy::Overrun overrun{.first_estimate = known.first_estimate,
                          .elapsed = elapsed,
                          .corrections = known.corrections,
                          .limit = what.requested};
  const Duration corrected = policy::corrected_estimate(use_.correction, overrun);
  known.corrections = overrun.corrections;
  return corrected;
}

void PredictedRuns::started(uint32_t job, const TraceJob& what, Duration now) {
  predictor_.started(facts_of(job, what), now.ms());
}

void PredictedRuns::finished(uint32_t job, const TraceJob& what, Duration now) {
  known_[job] = Known{};
  predictor_.finished(facts_of(job, what), what.run.ms(), now.ms());
}

}  // namespace gpusched::replay
