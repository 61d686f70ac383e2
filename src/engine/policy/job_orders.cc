#include "engine/policy/job_orders.h"

#include <algorithm>

#include "engine/policy/backfill/overrun.h"

namespace gpusched::policy {
namespace {

__extension__ using Wide = __int128;

/// Rest of a run: never nothing, because it is not over.
Duration rest_of(const State& state, const Job& job, const RunTimes& run_times, Duration attained, Time now) {
  const Duration whole = std::max(run_times.to_order(state, job, attained, now), milliseconds(1));
  if (whole > attained) return whole - attained;
  Overrun overrun{.first_estimate = whole, .elapsed = attained, .corrections = 0, .limit = job.max_runtime};
  return corrected_estimate(Correction::kLimit, overrun) - attained;
}

}  // namespace

int64_t PriorityFirst::rank(const State& /*state*/, const Job& job, const RunTimes& /*run_times*/,
                            Time /*now*/) const {
  return job.order_key;
}

int64_t DeadlineFirst::rank(const State& /*state*/, const Job& job, const RunTimes& /*run_times*/,
                            Time /*now*/) const {
  return job.deadline.valid() ? -job.deadline.ms() : kLast + 1;
}

int64_t ShortestFirst::rank(const State& state, const Job& job, const RunTimes& run_times, Time now) const {
  const Amount wanted = total_of(state.class_of(job).parts);
  const int64_t milli = wanted.has_gpus() ? wanted.gpu_thousandths() : kMilliPerGpu;
  const Duration attained =
      milliseconds(static_cast<int64_t>(Wide{job.attained_gpu_ms} * kMilliPerGpu / milli));
  const Wide left = Wide{milli} * rest_of(state, job, run_times, attained, now).ms() / kMilliPerGpu;
  return -static_cast<int64_t>(std::min<Wide>(left, INT64_MAX - 1));
}

int64_t attained_level(const std::vector<int64_t>& levels, int64_t gpu_ms) {
  return std::upper_bound(levels.begin(), levels.end(), gpu_ms / 1000) - levels.begin();
}

int64_t LeastAttainedFirst::rank(const State& /*state*/, const Job& job, const RunTimes& /*run_times*/,
                                 Time /*now*/) const {
  return -attained_level(levels_, job.attained_gpu_ms);
}

}  // namespace gpusched::policy
