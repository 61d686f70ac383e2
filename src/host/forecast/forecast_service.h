#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "forecast/forecast.h"
#include "forecast/moves.h"
#include "host/core/host_core.h"
#include "host/forecast/eta_score.h"
#include "host/forecast/known_run_times.h"
#include "host/forecast/learned_run_times.h"
#include "host/readers/observer.h"

namespace gpusched {

/// Answers questions about the future, on a thread of its own that gives way to the others: one at a time,
/// from a copy of the observer's state. A copy or forecast that is still true is used again; a new one is
/// made only when something has changed and as often as it is cheap (see `Pace`). Estimates of waiting jobs
/// are scored when they start. Public members are thread-safe.
///
/// Nothing that is asked here ends the scheduler: a CHECK that fails in a forecast is logged, what the
/// service had is thrown away, and whoever asked is told that there is no forecast
/// (docs/adr/waiting-jobs.md).
class ForecastService {
 public:
  /// How much of a thread's time is spent.
  struct Pace {
    Duration state_age_max = seconds(5);  ///< No answer is from an older state, unless nothing has changed.
    Duration forecast_time = seconds(2);  ///< One forecast is broken off then, with the runs it has made.
    /// Factor of the time that the last copy or forecast took, before a new one.
    int64_t pause_factor = 10;
    Duration sample_every =
        seconds(60);  ///< While jobs wait: a forecast that nobody asked for, to be scored.
    int nice = 10;
    Duration move_every = seconds(10);     ///< With MoveTuning::Mode::kAct, while jobs wait.
    Duration move_patience = seconds(15);  ///< A job has waited so long before others are moved for it.
  };

  /// Sources of an answer; valid only while the question is asked.
  class Table {
   public:
    /// Settled: what the planner starts at once is placed in it.
    const forecast::World& world() const { return *service_.world_; }
    /// Forecast of that world or of one before it; made when there is none that knows `job`.
    const forecast::Forecast& forecast(JobId job);
    /// A forecast of another world, until `job` has started.
    forecast::Forecast forecast_of(const forecast::World& world, JobId job);
    KnownRunTimes& run_times() const { return *service_.known_; }
    /// By the configuration, for whatever waits.
    forecast::MoveOptions move_options() const;

   private:
    friend class ForecastService;
    explicit Table(ForecastService& service) : service_(service) {}
    ForecastService& service_;
  };
  /// Gives the answer to whoever asked.
  using Answer = std::function<void()>;
  /// Called at most once, on the service's thread, where a CHECK that fails is a forecast that fails and no
  /// more; what it returns is called next.
  using Question = std::function<Answer(Table&)>;
  /// Called instead of the answer, from any thread: too many wait, the service shuts down, or the forecast
  /// failed.
  using Unavailable = std::function<void(const Error&)>;

  ForecastService(Observer& observer, const Clock& clock, const HostTuning& tuning, const Pace& pace);
  ~ForecastService();

  /// With MoveTuning::Mode::kAct: who carries moves out. Called on the service's thread. Before anybody asks.
  void on_moves(std::function<void(MoveJobs)> carry_out);
  /// Answers from a state that has seen `sequence`. `also`: final jobs that the world must know.
  void ask(uint64_t sequence, std::vector<JobId> also, Question question, Unavailable unavailable);
  /// Before the observer ends. Callers that wait are told so.
  void stop();

  struct Quality {
    EtaScore::Totals eta;
    std::map<TenantId, EtaScore::Totals> eta_by_tenant;
    LearnedRunTimes::Quality runs;
    std::map<TenantId, LearnedRunTimes::Quality> runs_by_tenant;
    int64_t forecasts = 0;    ///< Forecasts made since the start.
    Duration forecasts_took;  ///< Total time of these forecasts.
    Duration copies_took;     ///< Total time that readers waited for copies.
    int64_t failures = 0;     ///< Work of the service that a CHECK ended.
  };
  Quality quality() const;
  /// When half of the runs of the newest forecast that was made started the job; nothing when it does not
  /// know the job, or when. Costs no forecast.
  std::optional<Time> known_start(JobId job) const;
  const HostTuning& tuning() const { return tuning_; }

 private:
  struct Asked {
    uint64_t sequence = 0;
    std::vector<JobId> also;
    Question question;
    Unavailable unavailable;
  };
  struct Copy;

  void run();
  void answer(const Asked& asked);
  bool contain(const std::function<void()>& work);
  bool take_copy(const Asked& asked);
  bool wait_until(Time at);
  void on_changes(const Observer::View& view, const Changes& changes);
  policy::PolicySet policies() const;
  forecast::Forecast make(const forecast::World& world, JobId only);
  bool forecast_serves(JobId job) const;
  void move_by_itself();

  Observer& observer_;
  const Clock& clock_;
  const HostTuning tuning_;
  const Pace pace_;

  // The service's thread.
  std::shared_ptr<KnownRunTimes> known_;
  std::optional<forecast::World> world_;
  std::vector<JobId> also_;
  uint64_t copied_sequence_ = 0;
  Time copied_at_;
  Duration copy_took_;
  std::shared_ptr<const forecast::Forecast> forecast_;
  std::deque<Time> moved_;  ///< When each job was moved by itself, in the last hour.
  Time forecast_at_;        ///< When it was done; monotonic, as all of these.
  Duration forecast_took_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Asked> asked_;
  bool stopping_ = false;
  uint64_t seen_sequence_ = 0;
  int64_t waiting_ = 0;
  std::function<void(MoveJobs)> carry_out_;
  LearnedRunTimes learned_;
  bool learning_ = false;
  EtaScore score_;
  std::shared_ptr<const forecast::Forecast> published_;  ///< The newest.
  int64_t forecasts_ = 0;
  int64_t failures_ = 0;
  Duration forecasts_took_sum_;
  Duration copies_took_sum_;

  std::thread thread_;
};

}  // namespace gpusched
