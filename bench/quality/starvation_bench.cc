// rooms: replay predict engine model base
//
// Does anybody starve? For 30 simulated days small jobs nearly fill 64 GPUs, and once a day two jobs come
// that need all and half of them. The bound is stated before, and is that of docs/policies.md.
#include <cstdlib>

#include "experiment.h"
#include "replay/report/measures.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/trace/starving_stream.h"
#include "table.h"

namespace gpusched {
namespace {

constexpr replay::StarvingStream kStream;

struct Row {
  const char* policy;
  const char* what;
  bool bounded;  ///< Whether the bound holds for it.
};
constexpr Row kRows[] = {{"priority_aging", "one reservation, learned run times", true},
                         {"priority_aging+limits", "one reservation, run times by limits", true},
                         {"priority_aging+reservations=4", "four reservations, learned run times", true},
                         {"priority_aging+reservations=0", "none: whatever fits starts", false}};

double hours_of(Duration duration) { return static_cast<double>(duration.ms()) / 3.6e6; }

int run(int seeds) {
  std::printf(
      "30 days, 64 GPUs, small jobs of 1 to 4 GPUs and at most 2 h at 80 %% of load; a job of 64 and one of "
      "32 GPUs "
      "a day\nbound on the longest wait of any large job: %.1f h\n%-40s %16s %16s %16s\n",
      hours_of(replay::longest_wait_bound(kStream)), "longest wait in hours, median of seeds",
      "of large jobs", "mean of large", "of small jobs");
  bool met = true;
  for (const Row& row : kRows) {
    const Result<replay::ReplayPolicy> policy = replay::parse_policy(row.policy);
    std::vector<double> large;
    std::vector<double> large_mean;
    std::vector<double> small;
    for (int seed = 1; seed <= seeds; ++seed) {
      const std::vector<replay::TraceJob> jobs =
          replay::starving_stream(kStream, static_cast<uint64_t>(seed));
      const Result<replay::ReplayOutcome> outcome =
          replay::replay_engine(jobs, *policy, {.cluster = {.pool = kStream.pool}});
      if (!outcome.ok()) return std::fprintf(stderr, "%s\n", outcome.error().message.c_str()), 1;
      std::vector<double> waits[2];
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        waits[jobs[i].queue == 2 ? 1 : 0].push_back(hours_of(outcome->runs[i].started - jobs[i].submitted));
      }
      const replay::Percentiles of_large = replay::percentiles_of(waits[1]);
      large.push_back(of_large.max);
      large_mean.push_back(of_large.mean);
      small.push_back(replay::percentiles_of(waits[0]).max);
    }
    const quality::Spread spread = quality::spread_of(large);
    std::printf("%-40s %16.2f %16.2f %16.2f   (large %.2f .. %.2f)\n", row.what, spread.median,
                quality::spread_of(large_mean).median, quality::spread_of(small).median, spread.low,
                spread.high);
    const std::string name = std::string("starvation, ") + row.what;
    const std::string ours = quality::grouped(spread.high, 2) + " h at most";
    const double bound_h = hours_of(replay::longest_wait_bound(kStream));
    if (row.bounded) {
      met &=
          quality::print_row(name, "<= " + quality::grouped(bound_h, 1) + " h", ours, spread.high <= bound_h);
    } else {
      quality::print_note(name, "no bound", ours);
    }
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  return gpusched::quality::run_experiment(argc, argv, "starvation", gpusched::run);
}
