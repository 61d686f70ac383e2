// rooms: replay host forecast predict engine model base
//
// When will it start? Each job that has to wait is told when it starts as it is submitted: by the forecast
// that the scheduler makes, run forward on a copy of the replay's state with run times drawn from what had
// ended by then, and calibrated by what came of earlier ones, with the code of the scheduler's forecast
// service. How many of the p90 came true, on KTH-SP2 and Helios vcvGl under the default policies.
//
//   tools/bench quality eta [RUNS]     RUNS shaken runs, 20 unless said
//
// As they are every job is asked about; in the shaken runs of KTH-SP2 every 8th.
#include <memory>
#include <optional>

#include "base/limits.h"
#include "engine/policy/policy.h"
#include "experiment.h"
#include "forecast/forecast.h"
#include "host/forecast/eta_score.h"
#include "host/forecast/known_run_times.h"
#include "replay/report/measures.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/scheduler/job_facts.h"
#include "table.h"

namespace gpusched {
namespace {

using replay::TraceJob;

constexpr const char* kPolicy = "priority_aging";  ///< As configured by default.

/// Asks for each job that does not start at once when it will, and keeps count of what came of it.
class Asking final : public replay::ReplayWatcher {
 public:
  Asking(const std::vector<TraceJob>& jobs, const replay::ReplayPolicy& policy, uint32_t every)
      : jobs_(jobs), policy_(policy), every_(every) {}

  void submitted(JobId id, uint32_t index, Time /*now*/) override {
    if (index % every_ == 0) asked_.push_back(id);
  }
  void placed(const State& /*state*/, const Attempt& attempt, uint32_t /*index*/, Time now) override {
    told_.placed(attempt.job, kDefaultTenant, now);
    const auto made = made_.find(attempt.job.value);
    if (made == made_.end()) return;
    ++counted_;
    if (now <= made->second.p50) ++p50_covered_;
    if (now <= made->second.p90) ++p90_covered_;
    made_.erase(made);
  }
  void settled(const State& state, const Knowledge& knowledge, Time now) override {
    for (const JobId id : std::exchange(asked_, {})) {
      const Job* job = state.jobs.find(id);
      if (job != nullptr && job->state == JobState::kPending) ask(state, knowledge, now, id);
    }
  }

  const EtaScore::Totals& told() const { return told_.totals(); }
  /// In per cent, before they were calibrated.
  double raw_p50() const { return share(p50_covered_); }
  double raw_p90() const { return share(p90_covered_); }

 private:
  double share(int64_t covered) const {
    return 100.0 * static_cast<double>(covered) / static_cast<double>(std::max<int64_t>(counted_, 1));
  }

  void ask(const State& state, const Knowledge& knowledge, Time now, JobId id) {
    const auto known = std::make_shared<KnownRunTimes>(
        [&](const predict::JobFacts& facts) {
          return knowledge.expected(static_cast<uint32_t>(facts.job - 1), now);
        },
        [&](const State& /*state*/, const Job& job) {
          const uint32_t index = knowledge.index_of(job.id);
          return replay::facts_of(index, jobs_[index]);
        });
    policy::PolicySet policies = policy::policies_for(policy_.scheduling);
    policies.run_times = known;
    forecast::World world(state.clone_unfinished({}), std::move(policies), now);
    forecast::Work work{.left = limits::kForecastWorkMax};
    world.settle(work);
    forecast::Options options;
    options.only = id;
    const forecast::Forecast all = forecast::forecast(world, *known, options);
    forecast::Forecast one{.at = all.at, .sequence = all.sequence, .runs = all.runs, .jobs = {}};
    const forecast::Estimate* estimate = all.find(id);
    if (estimate == nullptr) return;
    one.jobs.emplace(id.value, *estimate);
    told_.add(one);
    if (estimate->p90 != kNever && estimate->p50 > now) made_.emplace(id.value, *estimate);
  }

  const std::vector<TraceJob>& jobs_;
  const replay::ReplayPolicy& policy_;
  uint32_t every_;
  std::vector<JobId> asked_;
  EtaScore told_;
  boost::unordered_flat_map<uint64_t, forecast::Estimate> made_;
  int64_t counted_ = 0;
  int64_t p50_covered_ = 0;
  int64_t p90_covered_ = 0;
};

struct Figures {
  int64_t count = 0;
  double p50 = 0;  ///< Per cent that started by then.
  double p90 = 0;
  double raw_p50 = 0;
  double raw_p90 = 0;
  double pinball_s = 0;
};

Figures figures(const std::vector<TraceJob>& jobs, int64_t pool, uint32_t every) {
  const Result<replay::ReplayPolicy> policy = replay::parse_policy(kPolicy);
  Asking asking(jobs, *policy, every);
  replay::ReplayOptions options{.cluster = {.pool = pool}};
  options.watcher = &asking;
  const Result<replay::ReplayOutcome> outcome = replay::replay_engine(jobs, *policy, options);
  CHECK(outcome.ok());
  const EtaScore::Totals& told = asking.told();
  const auto per_cent = [](const predict::QuantileScore& score) {
    return 100.0 * static_cast<double>(score.covered()) /
           static_cast<double>(std::max<int64_t>(score.count(), 1));
  };
  return {.count = told.p90.count(),
          .p50 = per_cent(told.p50),
          .p90 = per_cent(told.p90),
          .raw_p50 = asking.raw_p50(),
          .raw_p90 = asking.raw_p90(),
          .pinball_s = static_cast<double>(told.p90.pinball_ms()) / 1e3};
}

void print(const char* what, const Figures& of) {
  std::printf(
      "%-24s %8lld waits; p90 covers %5.1f %% (before calibration %5.1f), p50 %5.1f %% (%5.1f); "
      "pinball loss of p90 %.0f s\n",
      what, static_cast<long long>(of.count), of.p90, of.raw_p90, of.p50, of.raw_p50, of.pinball_s);
}

struct Where {
  const char* name;
  const char* format;
  const char* file;
  const char* queue;  ///< Null: all.
  int64_t pool;
  uint32_t every;  ///< One of so many of the shaken runs' jobs is asked about.
};

bool measure(const Where& where, int runs, int& status) {
  std::optional<replay::Trace> trace = quality::open_trace(where.format, where.file, status);
  if (!trace.has_value()) return true;
  const std::vector<TraceJob> jobs = quality::jobs_of(*trace, where.queue);
  const Figures as_it_is = figures(jobs, where.pool, 1);
  print(where.name, as_it_is);
  std::vector<double> covered;
  for (int i = 0; i < runs; ++i) {
    const Figures run =
        figures(replay::shaken(jobs, minutes(1), static_cast<uint64_t>(i) + 1), where.pool, where.every);
    if (i == 0) print("  shaken, the first", run);
    covered.push_back(run.p90);
  }
  const quality::Spread spread = quality::spread_of(covered);
  std::printf("  %d runs shaken by up to 60 s: p90 covers %.1f .. %.1f .. %.1f %%\n", runs, spread.low,
              spread.median, spread.high);
  const auto row = [&](const std::string& what, double per_cent) {
    return quality::print_row(what, "90 +- 3 %", quality::grouped(per_cent, 1) + " %",
                              per_cent >= 87 && per_cent <= 93);
  };
  bool met = row(std::string("start, p90 as it is told covers, ") + where.name, as_it_is.p90);
  met &= row("  the same, shaken", spread.median);
  return met;
}

int run(int runs) {
  int status = 0;
  bool met = measure({.name = "KTH-SP2",
                      .format = "swf",
                      .file = "/kth/KTH-SP2.swf.gz",
                      .queue = nullptr,
                      .pool = 100,
                      .every = 8},
                     runs, status);
  met &= measure({.name = "Helios vcvGl",
                  .format = "helios",
                  .file = "/helios_venus/venus_2vc_sept2020.csv.gz",
                  .queue = "vcvGl",
                  .pool = 160,
                  .every = 1},
                 runs, status);
  return met ? status : 1;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  return gpusched::quality::run_experiment(argc, argv, "eta", gpusched::run);
}
