// rooms: published replay predict engine model base
//
// Muri's traces on 64 alike GPUs, preemptive: SRTF and SRSF with durations known and without restarts, as
// published simulators run them; then ours, where whoever is stopped pays for each new start.
#include <cmath>
#include <cstdlib>

#include "experiment.h"
#include "published/gang_replay.h"
#include "replay/report/measures.h"
#include "replay/trace/formats.h"
#include "replay/trace/traces_folder.h"
#include "table.h"

namespace gpusched {
namespace {

using quality::grouped;
using replay::TraceJob;

/// The dearest start of the published simulator's models (4 to 46 s), charged for every start after a stop.
constexpr Duration kRestart = seconds(46);
constexpr replay::GangRules kFree = {
    .nodes = 8, .gpus_per_node = 8, .preemptive = true, .pass_blocked = true};
constexpr replay::GangRules kCharged = {
    .nodes = 8, .gpus_per_node = 8, .preemptive = true, .pass_blocked = true, .restart = kRestart};

/// Frozen, chosen on trace1: the first level's GPU-seconds, and how much longer each next one is.
constexpr int64_t kFirstLevel = 14'400;
constexpr int64_t kNextLevelPerMille = 6000;

struct Figures {
  double completion_s = 0;
  double wait_max_s = 0;
  uint64_t preemptions = 0;
};

Figures with(const std::vector<TraceJob>& jobs, const replay::GangRules& rules, replay::GangOrder& order) {
  const replay::ReplayOutcome outcome = replay::replay_gangs(jobs, rules, order);
  const replay::Measures all = replay::measures_of(jobs, outcome, 64);
  return {.completion_s = all.completion_s.mean,
          .wait_max_s = all.wait_s.max,
          .preemptions = outcome.preemptions};
}

struct Published {
  const char* trace;
  double srtf_free;  ///< Without overhead; 0: not known.
  double srsf_free;
  double srsf;
  double tiresias;
  double themis;
};
constexpr Published kPublished[] = {{"trace1", 1'333'933, 952'242, 980'141, 3'330'371, 1'823'179},
                                    {"trace2", 0, 0, 2'213'950, 7'396'369, 4'628'172}};

void print(const char* name, const Figures& of) {
  std::printf("%-44s %14.0f %14.0f %12llu\n", name, of.completion_s, of.wait_max_s,
              static_cast<unsigned long long>(of.preemptions));
}

template <typename Make>
quality::Spread shaken_runs(const std::vector<TraceJob>& jobs, int runs, Make&& make) {
  std::vector<double> completions;
  for (int i = 0; i < runs; ++i) {
    const std::vector<TraceJob> moved = replay::shaken(jobs, minutes(1), static_cast<uint64_t>(i) + 1);
    auto order = make();
    completions.push_back(with(moved, kCharged, order).completion_s);
  }
  return quality::spread_of(completions);
}

bool run_trace(const Published& published, int runs, bool& skipped) {
  const std::string path = replay::traces_folder() + "/muri/" + published.trace + ".csv.gz";
  const Result<replay::Trace> trace = replay::read_trace("muri", path);
  if (!trace.ok()) {
    skipped = trace.error().code == ErrorCode::kNotFound;
    std::printf("%s: %s\n", skipped ? "skipped" : "failed", trace.error().message.c_str());
    return skipped;
  }
  const std::vector<TraceJob>& jobs = trace->jobs;
  std::printf("\nMuri %s: %zu jobs, 64 GPUs\n%-44s %14s %14s %12s\n", published.trace, jobs.size(), "seconds",
              "completion", "longest wait", "preemptions");
  replay::ShortestTime srtf;
  replay::LeastService srsf;
  replay::AttainedLevels levels(kFirstLevel, kNextLevelPerMille);
  const Figures srtf_free = with(jobs, kFree, srtf);
  const Figures srsf_free = with(jobs, kFree, srsf);
  print("SRTF, free restarts", srtf_free);
  print("SRSF, free restarts", srsf_free);
  print("ours, durations known, restarts charged", with(jobs, kCharged, srsf));
  print("ours, durations not known, restarts charged", with(jobs, kCharged, levels));
  std::fflush(stdout);
  const quality::Spread aware = shaken_runs(jobs, runs, [] { return replay::LeastService(); });
  const quality::Spread unaware =
      shaken_runs(jobs, runs, [] { return replay::AttainedLevels(kFirstLevel, kNextLevelPerMille); });
  std::printf(
      "%d runs shaken by up to 60 s: known %.0f .. %.0f .. %.0f s, not known %.0f .. %.0f .. %.0f s\n\n",
      runs, aware.low, aware.median, aware.high, unaware.low, unaware.median, unaware.high);
  const std::string name = std::string("Muri ") + published.trace;
  bool met = true;
  const auto near = [&](const char* what, double wanted, double value) {
    return quality::print_row(name + ", " + what + ", no overhead", grouped(wanted) + " s +- 0.1 %",
                              grouped(value) + " s", std::abs(value - wanted) <= wanted / 1000);
  };
  if (published.srtf_free > 0) {
    met &= near("SRTF", published.srtf_free, srtf_free.completion_s);
    met &= near("SRSF", published.srsf_free, srsf_free.completion_s);
  }
  met &= quality::print_row(name + ", ours, durations known (published SRSF)",
                            "<= " + grouped(published.srsf) + " s", grouped(aware.median) + " s",
                            aware.median <= published.srsf);
  met &= quality::print_row(name + ", ours, durations not known (Themis)",
                            "<= " + grouped(published.themis) + " s", grouped(unaware.median) + " s",
                            unaware.median <= published.themis);
  quality::print_note("  aim: half of Tiresias-L", grouped(published.tiresias / 2) + " s",
                      grouped(unaware.median) + " s");
  return met;
}

int run(int runs) {
  bool met = true;
  bool skipped = false;
  for (const Published& published : kPublished) {
    met &= run_trace(published, runs, skipped);
    if (skipped) return 0;
  }
  return met ? 0 : 1;
}

/// For choosing the levels: `muri levels TRACE FIRST RATIO_PER_MILLE`.
int try_levels(char** argv) {
  const Result<replay::Trace> trace =
      replay::read_trace("muri", replay::traces_folder() + "/muri/" + argv[2] + ".csv.gz");
  if (!trace.ok()) return 1;
  replay::AttainedLevels levels(std::atoll(argv[3]), std::atoll(argv[4]));
  print((std::string(argv[2]) + " " + argv[3] + " " + argv[4]).c_str(), with(trace->jobs, kCharged, levels));
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "levels") return gpusched::try_levels(argv);
  return gpusched::quality::run_experiment(argc, argv, "muri", gpusched::run);
}
