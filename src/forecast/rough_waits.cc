#include "forecast/rough_waits.h"

#include <algorithm>

#include "base/limits.h"
#include "forecast/forecast.h"

namespace gpusched::forecast {
namespace {

/// Half of the runs are not longer.
constexpr int32_t kMedian = 500;
// Bounds under which no product of them leaves 64 bits.
constexpr Duration kRunMax = hours(24 * 30);
constexpr std::size_t kCountedMax = 100'000;
constexpr int64_t kAheadMax = 1'000'000;

Duration expected_run(const Job& job, Duration elapsed) {
  return sampled_run({}, job.max_runtime, elapsed, kMedian);
}

}  // namespace

RoughWaits::RoughWaits(const State& state, Time now) : made_at_(now) {
  for (const Node& node : state.nodes) {
    if (node.removed || !node.in_service()) continue;
    has_nodes_ = true;
    for (const Device& device : node.devices) {
      if (device.state == DeviceState::kQuarantined || !device.fit()) continue;
      total_milli_ += device.milli_capacity;
      if (device.state == DeviceState::kFree || device.state == DeviceState::kDraining)
        free_milli_ += device.milli_capacity;
      if (device.state == DeviceState::kShared) free_milli_ += device.milli_left();
    }
  }
  expect_ends(state, now);
  look_at_waiting(state);
}

void RoughWaits::expect_ends(const State& state, Time now) {
  for (const auto& [key, attempt] : state.attempts) {
    const Job* const job = state.jobs.find(key.job);
    if (job == nullptr || attempt.abandoned || attempt.going == 0) continue;
    const int64_t held = state.held_by(*job).gpu_thousandths();
    if (held == 0) continue;
    const Time from = attempt.started_at.valid() ? attempt.started_at : now;
    const Duration elapsed = std::max(now - from, Duration{});
    steps_.push_back({.at = from + expected_run(*job, elapsed), .gpu_milli = held});
  }
  std::ranges::sort(steps_, {}, &Step::at);
  if (steps_.size() <= kSteps) return;
  std::vector<Step> together(kSteps);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = together[i * kSteps / steps_.size()];
    step.at = steps_[i].at;
    step.gpu_milli += steps_[i].gpu_milli;
  }
  steps_ = std::move(together);
}

void RoughWaits::look_at_waiting(const State& state) {
  int64_t work = 0;
  int64_t jobs = 0;
  std::size_t looked = 0;
  for (const JobClass& job_class : state.classes) {
    if (job_class.waiting.empty()) continue;
    if (++looked > kClassesLooked) break;
    const Job& job = state.job_at(job_class.waiting.front().job);
    const auto count = static_cast<int64_t>(std::min(job_class.waiting.size(), kCountedMax));
    const Duration run = std::min(expected_run(job, {}), kRunMax);
    work += count * total_of(job_class.parts).gpu_thousandths() * (run.ms() / 1'000);
    jobs += count;
  }
  if (jobs > 0) work_ = work / jobs;
}

std::optional<Duration> RoughWaits::wait(int64_t gpu_milli, int64_t jobs_ahead, Time now) const {
  if (!has_nodes_ || gpu_milli > total_milli_) return std::nullopt;
  int64_t left = work_ * std::min(jobs_ahead, kAheadMax);
  Time at = made_at_;
  int64_t open = std::min(free_milli_, total_milli_);
  for (const Step& step : steps_) {
    const int64_t filled = open * (std::max(step.at - at, Duration{}).ms() / 1'000);
    if (open >= gpu_milli && left <= filled) break;
    left = std::max<int64_t>(left - filled, 0);
    at = std::max(at, step.at);
    open = std::min(open + step.gpu_milli, total_milli_);
  }
  if (open > 0 && left > 0) at = at + std::min(seconds(left / open), limits::kForecastHorizon);
  return std::max(at - now, Duration{});
}

}  // namespace gpusched::forecast
