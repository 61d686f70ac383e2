// rooms: published replay predict engine base
//
// KTH-SP2 (28,481 jobs of a year on 100 processors): what backfilling and prediction are worth. First five
// averages that were published (Gaussier et al., SC'15), to the digit, by the engine's own backfilling under
// the published rules of events; then the predictor that learns, each job predicted from what had ended when
// it was submitted, against the published predictor, both as the median of runs in which every arrival is
// shaken by up to a minute.
//
//   tools/bench quality kth [RUNS]     RUNS shaken runs, 20 unless said
//
// Exit status 0 when all is met, 1 when not, 0 with a line "skipped" when the trace is not there.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "experiment.h"
#include "predict/baselines.h"
#include "predict/learned.h"
#include "predict/quality.h"
#include "published/estimators.h"
#include "published/pool_replay.h"
#include "replay/scheduler/job_facts.h"
#include "replay/trace/swf.h"
#include "table.h"

namespace gpusched {
namespace {

using policy::Correction;
using replay::PoolOutcome;
using replay::PoolRules;
using replay::PredictedRuns;
using replay::TraceJob;

constexpr Duration kBound = seconds(10);
constexpr uint64_t kSeedFirst = 1;

/// Rules of EASY++ with the shortest first; the estimates make the difference.
constexpr PoolRules kEasyPlusPlus = {
    .capacity = 100, .shortest_first = true, .pass_at_every_submission = true};

/// Frozen: chosen on this trace, and used unchanged on every other one.
constexpr PredictedRuns::Use kLearnedUse = {.order_per_mille = 500,
                                            .hold_per_mille = 500,
                                            .short_hold_per_mille = 100,
                                            .short_limit = hours(4),
                                            .running_per_mille = 900,
                                            .correction = Correction::kLimit,
                                            .least = seconds(1)};

/// For comparison: whoever may be short passes, whatever its limit. Better by the average, at the cost of
/// large jobs.
constexpr PredictedRuns::Use kBoldUse = {.order_by = PredictedRuns::OrderBy::kMean,
                                         .hold_per_mille = 100,
                                         .running_per_mille = 750,
                                         .correction = Correction::kLimit,
                                         .least = seconds(1)};

struct Run {
  double slowdown = 0;
  double wait_max_h = 0;
  double wait_mean_h = 0;
  double wait_large_h = 0;  ///< Mean of the jobs of half the processors and more: what passing costs.
  uint64_t overfull_starts = 0;
};

double in_hours(Duration duration) {
  return static_cast<double>(duration.ns) / static_cast<double>(hours(1).ns);
}

Run run_of(const std::vector<TraceJob>& jobs, const PoolOutcome& outcome) {
  Run run{.slowdown = replay::bounded_slowdown(jobs, outcome.started, kBound),
          .overfull_starts = outcome.overfull_starts};
  int64_t large = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const double wait = in_hours(outcome.started[i] - jobs[i].submitted);
    run.wait_max_h = std::max(run.wait_max_h, wait);
    run.wait_mean_h += wait / static_cast<double>(jobs.size());
    if (2 * jobs[i].size < kEasyPlusPlus.capacity) continue;
    run.wait_large_h += wait;
    ++large;
  }
  run.wait_large_h /= static_cast<double>(std::max<int64_t>(large, 1));
  return run;
}

Run run_with(const std::vector<TraceJob>& jobs, const PoolRules& rules, predict::Predictor& predictor,
             const PredictedRuns::Use& use) {
  PredictedRuns estimates(predictor, use);
  return run_of(jobs, replay::replay_pool(jobs, rules, estimates));
}

Run requested(const std::vector<TraceJob>& jobs, const PoolRules& rules) {
  predict::Requested predictor;
  return run_with(jobs, rules, predictor, {});
}

Run last_two(const std::vector<TraceJob>& jobs, Correction correction) {
  predict::LastTwo predictor(1000);
  return run_with(jobs, kEasyPlusPlus, predictor, {.correction = correction});
}

Run clairvoyant(const std::vector<TraceJob>& jobs) {
  predict::Clairvoyant predictor;
  for (uint32_t i = 0; i < jobs.size(); ++i) {
    predictor.reveal(replay::facts_of(i, jobs[i]).job, jobs[i].run.ms());
  }
  return run_with(jobs, kEasyPlusPlus, predictor, {});
}

Run learned(const std::vector<TraceJob>& jobs, const PredictedRuns::Use& use) {
  predict::Learned predictor;
  return run_with(jobs, kEasyPlusPlus, predictor, use);
}

/// Each arrival moved by whole seconds, up to `by_s` either way, and the jobs in the order of their new
/// arrivals.
std::vector<TraceJob> shaken(std::vector<TraceJob> jobs, int64_t by_s, uint64_t seed) {
  Prng prng(seed);
  for (TraceJob& job : jobs) {
    const Duration moved = job.submitted + Duration{prng.between(-by_s, by_s) * seconds(1).ns};
    job.submitted = std::max(moved, Duration{});
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submitted < b.submitted; });
  return jobs;
}

struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
  double wait_mean_h = 0;  ///< The median over the runs, as the next two.
  double wait_large_h = 0;
  double wait_max_h = 0;
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

Spread spread_of(const std::vector<std::vector<TraceJob>>& traces,
                 const std::function<Run(const std::vector<TraceJob>&)>& experiment) {
  std::vector<double> slowdowns;
  std::vector<double> means;
  std::vector<double> large;
  std::vector<double> longest;
  for (const std::vector<TraceJob>& jobs : traces) {
    const Run run = experiment(jobs);
    slowdowns.push_back(run.slowdown);
    means.push_back(run.wait_mean_h);
    large.push_back(run.wait_large_h);
    longest.push_back(run.wait_max_h);
  }
  const auto [low, high] = std::minmax_element(slowdowns.begin(), slowdowns.end());
  return {.low = *low,
          .median = median_of(slowdowns),
          .high = *high,
          .wait_mean_h = median_of(means),
          .wait_large_h = median_of(large),
          .wait_max_h = median_of(longest)};
}

bool print_exact(const char* name, double published, double ours) {
  const bool met = std::abs(published - ours) < 5e-7;
  return quality::print_row(std::string("KTH-SP2, ") + name, quality::grouped(published, 6),
                            quality::grouped(ours, 6), met);
}

void print_spread(const char* name, const Spread& spread) {
  std::printf("%-42s %8.3f  %6.2f .. %6.2f  %8.2f %8.2f %8.1f\n", name, spread.median, spread.low,
              spread.high, spread.wait_mean_h, spread.wait_large_h, spread.wait_max_h);
}

/// Coverage of the p50 and the p90 of run times, as said at submission, in the order of the trace.
class Coverage final : public PredictedRuns {
 public:
  using PredictedRuns::PredictedRuns;

  void print() const {
    std::printf(
        "run times predicted at submission: p50 covers %.1f %%, p90 %.1f %% as learned and %.1f %% "
        "calibrated; "
        "pinball loss p50 %.0f s, p90 %.0f s\n",
        p50_.covered_per_mille() / 10.0, p90_.covered_per_mille() / 10.0,
        calibrated_.covered_per_mille() / 10.0, static_cast<double>(p50_.pinball_ms()) / 1000,
        static_cast<double>(p90_.pinball_ms()) / 1000);
  }

  void finished(uint32_t job, const TraceJob& what, Duration now) override {
    const Said& said = said_[job];
    const int64_t run_ms = what.run.ms();
    p50_.add(said.p50_ms, run_ms);
    p90_.add(said.p90_ms, run_ms);
    calibrated_.add(said.calibrated_ms, run_ms);
    calibration_.add(run_ms <= said.calibrated_ms);
    PredictedRuns::finished(job, what, now);
  }

 protected:
  void predicted(uint32_t job, const predict::RunTimes& times) override {
    if (job >= said_.size()) said_.resize(job + 1);
    said_[job] = {.p50_ms = times.quantile_ms(500),
                  .p90_ms = times.quantile_ms(900),
                  .calibrated_ms = times.quantile_ms(calibration_.level_per_mille())};
  }

 private:
  struct Said {
    int64_t p50_ms = 0;
    int64_t p90_ms = 0;
    int64_t calibrated_ms = 0;
  };
  std::vector<Said> said_;
  predict::QuantileScore p50_{500};
  predict::QuantileScore p90_{900};
  predict::QuantileScore calibrated_{900};
  predict::Calibration calibration_{900};
};

bool print_published(const std::vector<TraceJob>& jobs) {
  std::printf("average bounded slowdown, published and ours:\n");
  bool met = print_exact("EASY", 92.576540, requested(jobs, {.capacity = 100}).slowdown);
  met &= print_exact("EASY-SJBF", 69.405401,
                     requested(jobs, {.capacity = 100, .shortest_first = true}).slowdown);
  met &= print_exact("EASY++ (last-2, Tsafrir's correction)", 63.500677,
                     last_two(jobs, Correction::kTsafrir).slowdown);
  met &= print_exact("last-2, corrected to the requested time", 62.856883,
                     last_two(jobs, Correction::kLimit).slowdown);
  met &= print_exact("EASY++ clairvoyant", 49.847719, clairvoyant(jobs).slowdown);
  const Run ours = learned(jobs, kLearnedUse);
  std::printf("%-46s %12s %12.6f   %llu overfull starts\n", "learned, out of sample", "-", ours.slowdown,
              static_cast<unsigned long long>(ours.overfull_starts));
  return met;
}

/// Whether what must be is.
bool print_shaken(const std::vector<TraceJob>& jobs, int64_t by_s, int runs) {
  std::vector<std::vector<TraceJob>> traces;
  for (int i = 0; i < runs; ++i) traces.push_back(shaken(jobs, by_s, kSeedFirst + static_cast<uint64_t>(i)));
  std::printf(
      "\narrivals shaken by up to %lld s, %d runs; waits in hours: mean, of jobs of 50 processors and more, "
      "longest\n%-42s %8s  %16s  %8s %8s %8s\n",
      static_cast<long long>(by_s), runs, "average bounded slowdown", "median", "least .. most", "mean",
      "large", "longest");
  const Spread easy = spread_of(traces, [](const auto& t) { return last_two(t, Correction::kTsafrir); });
  print_spread("EASY++ (last-2, Tsafrir's correction)", easy);
  print_spread("last-2, corrected to the requested time",
               spread_of(traces, [](const auto& t) { return last_two(t, Correction::kLimit); }));
  const Spread ours = spread_of(traces, [](const auto& t) { return learned(t, kLearnedUse); });
  print_spread("learned, out of sample", ours);
  print_spread("learned, bold", spread_of(traces, [](const auto& t) { return learned(t, kBoldUse); }));
  const Spread oracle = spread_of(traces, clairvoyant);
  print_spread("EASY++ clairvoyant", oracle);
  const bool better = ours.median < easy.median;
  const std::string by = "shaken by " + std::to_string(by_s) + " s";
  quality::print_row("KTH-SP2, learned, " + by + " (EASY++, last-2)", "< " + quality::grouped(easy.median, 3),
                     quality::grouped(ours.median, 3), better);
  quality::print_note("  aim: clairvoyant", quality::grouped(oracle.median, 3),
                      quality::grouped(ours.median, 3));
  return better;
}

int run(int shaken_runs) {
  int status = 0;
  const std::optional<replay::Trace> trace = quality::open_trace("swf", "/kth/KTH-SP2.swf.gz", status);
  if (!trace.has_value()) return status;
  std::printf("KTH-SP2: %zu jobs, 100 processors\n", trace->jobs.size());
  bool met = print_published(trace->jobs);
  met &= print_shaken(trace->jobs, 60, shaken_runs);
  print_shaken(trace->jobs, 900, shaken_runs);
  std::printf("\n");
  predict::Learned predictor;
  Coverage coverage(predictor, kLearnedUse);
  replay::replay_pool(trace->jobs, kEasyPlusPlus, coverage);
  coverage.print();
  return met ? 0 : 1;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  return gpusched::quality::run_experiment(argc, argv, "kth", gpusched::run);
}
