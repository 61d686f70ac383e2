#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "forecast/rough_waits.h"
#include "host/core/system_clock.h"
#include "host/forecast/forecast_service.h"
#include "host/readers/observer.h"

namespace gpusched::api {

/// How long jobs wait, for whoever looks at one: by the newest forecast, and roughly until one knows the job.
/// Who looks at such a job has a forecast made, so that nobody has to ask for one. On the observer's thread.
class WaitEstimates {
 public:
  /// From `now` on; nothing when nobody knows, as of a job that is held or that no node could run.
  std::optional<Duration> of(const Observer::View& view, const Job& job, ForecastService& forecasts,
                             Time now) {
    if (job.state != JobState::kPending) return Duration{};
    const std::optional<Time> start = forecasts.known_start(job.id);
    if (start && *start >= now) return *start - now;
    if (!job.is_queued()) {
      const bool waits_for_time = !job.held && job.unmet == 0 && job.not_before > now;
      return waits_for_time ? std::optional(job.not_before - now) : std::nullopt;
    }
    ask_for_forecast(forecasts, view.state.last.sequence);
    if (view.state.config.pause.on() || !passes_by_itself(view.reason_of(job).code)) return std::nullopt;
    look_roughly(view.state, now);
    const int64_t gpu_milli = total_of(view.state.class_of(job).parts).gpu_thousandths();
    return rough_.wait(gpu_milli, static_cast<int64_t>(view.state.line.rank(job.order())), now);
  }

 private:
  /// A forecast that was asked for, and when the next one may be: a thirtieth of a thread's time is spent.
  struct Asked {
    std::atomic<bool> is_under_way = false;
    std::atomic<int64_t> next_ns = 0;
  };
  static constexpr int64_t kForecastPause = 30;
  static constexpr Duration kForecastEvery = seconds(1);
  static constexpr int64_t kRoughPause = 100;  ///< At most a hundredth of the observer's time.

  /// Whether only what runs, or stands before it, keeps the job from starting.
  static bool passes_by_itself(WaitCode code) {
    return code == WaitCode::kQueued || code == WaitCode::kReserved || code == WaitCode::kGangPartiallyFits ||
           code == WaitCode::kNodesTaken || code == WaitCode::kLayoutUnavailable || is_short_of_room(code);
  }

  void ask_for_forecast(ForecastService& forecasts, uint64_t sequence) {
    const auto clock = [] { return SystemClock().monotonic(); };
    if (clock().ns < asked_->next_ns.load() || asked_->is_under_way.exchange(true)) return;
    const auto made = [asked = asked_, clock](ForecastService::Table& table) -> ForecastService::Answer {
      const Time begin = clock();
      table.forecast({});
      const Time end = clock();
      asked->next_ns = (end + std::max(kForecastEvery, (end - begin) * kForecastPause)).ns;
      asked->is_under_way = false;
      return [] {};
    };
    forecasts.ask(sequence, {}, made, [asked = asked_, clock](const Error&) {
      asked->next_ns = (clock() + kForecastEvery).ns;
      asked->is_under_way = false;
    });
  }

  void look_roughly(const State& state, Time now) {
    const Time begin = SystemClock().monotonic();
    const bool is_new = looked_at_.valid() && sequence_ == state.last.sequence;
    if (is_new || (looked_at_.valid() && begin - looked_at_ < took_ * kRoughPause)) return;
    rough_ = forecast::RoughWaits(state, now);
    looked_at_ = SystemClock().monotonic();
    took_ = looked_at_ - begin;
    sequence_ = state.last.sequence;
  }

  const std::shared_ptr<Asked> asked_ = std::make_shared<Asked>();
  forecast::RoughWaits rough_;
  Time looked_at_;  ///< Monotonic.
  Duration took_;
  uint64_t sequence_ = 0;
};

}  // namespace gpusched::api
