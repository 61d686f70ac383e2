// rooms: replay predict engine model base
//
// Microsoft's 2021 jobs on 16 islands of 8 GPUs in two racks: how many gangs lie inside one island or one
// rack, and over how weak a link the weakest two of their GPUs talk, by the real engine and by a scheduler
// that does not know where GPUs are. The cluster and its bandwidths are stated here, not published.
#include <algorithm>
#include <set>
#include <tuple>

#include "experiment.h"
#include "replay/report/measures.h"
#include "replay/scheduler/engine_replay.h"

namespace gpusched {
namespace {

using replay::TraceJob;

constexpr uint32_t kIslands = 16;
constexpr uint32_t kGpusOfIsland = 8;
constexpr uint32_t kRacks = 2;
constexpr int64_t kGpus = int64_t{kIslands} * kGpusOfIsland;
/// GB/s in one direction: NVLink of an A100; a 200 Gb/s adapter; that over a switch with half the uplinks.
constexpr double kIslandGbs = 300;
constexpr double kRackGbs = 25;
constexpr double kClusterGbs = 12.5;

uint32_t rack_of(uint32_t island) { return island * kRacks / kIslands; }

/// Places of all gangs, jobs of more than one GPU.
struct Lie {
  uint64_t small = 0, small_inside = 0;  ///< Gangs that an island can hold, and those inside one.
  uint64_t large = 0, large_inside = 0;  ///< Larger ones, and those inside one rack.
  double weakest_sum = 0;

  void add(int64_t size, const std::set<uint32_t>& islands) {
    std::set<uint32_t> racks;
    for (const uint32_t island : islands) racks.insert(rack_of(island));
    if (size <= kGpusOfIsland) {
      ++small;
      small_inside += islands.size() == 1 ? 1 : 0;
    } else {
      ++large;
      large_inside += racks.size() == 1 ? 1 : 0;
    }
    weakest_sum += islands.size() == 1 ? kIslandGbs : racks.size() == 1 ? kRackGbs : kClusterGbs;
  }
  double weakest() const { return weakest_sum / static_cast<double>(small + large); }
  static double share(uint64_t part, uint64_t of) {
    return of == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  }
};

class Watcher final : public replay::ReplayWatcher {
 public:
  explicit Watcher(const std::vector<TraceJob>& jobs) : jobs_(jobs) {}
  void placed(const State& state, const Attempt& attempt, uint32_t index, Time /*now*/) override {
    if (jobs_[index].size < 2) return;
    std::set<uint32_t> islands;
    for (const Member& member : attempt.members)
      islands.insert(static_cast<uint32_t>(std::stoul(state.find_node(member.node)->name.substr(1))));
    lie.add(jobs_[index].size, islands);
  }
  Lie lie;

 private:
  const std::vector<TraceJob>& jobs_;
};

/// The GPUs that jobs get which start and end so when each takes the first ones that are free.
Lie first_free(const std::vector<TraceJob>& jobs, const replay::ReplayOutcome& outcome) {
  std::vector<std::tuple<Duration, bool, std::size_t>> moments;  // Ends before starts of one instant.
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!outcome.runs[i].ran) continue;
    moments.emplace_back(outcome.runs[i].ended, false, i);
    moments.emplace_back(outcome.runs[i].started, true, i);
  }
  std::sort(moments.begin(), moments.end());
  Lie lie;
  std::vector<bool> taken(static_cast<std::size_t>(kGpus));
  std::vector<std::vector<uint32_t>> has(jobs.size());
  for (const auto& [at, starts, i] : moments) {
    if (!starts) {
      for (const uint32_t gpu : has[i]) taken[gpu] = false;
      has[i].clear();
      continue;
    }
    std::set<uint32_t> islands;
    for (uint32_t gpu = 0; gpu < kGpus && has[i].size() < static_cast<std::size_t>(jobs[i].size); ++gpu) {
      if (taken[gpu]) continue;
      has[i].push_back(gpu);
      islands.insert(gpu / kGpusOfIsland);
    }
    if (jobs[i].size > 1) lie.add(jobs[i].size, islands);
    if (outcome.runs[i].ended == at) {
      has[i].clear();
      continue;
    }
    for (const uint32_t gpu : has[i]) taken[gpu] = true;
  }
  return lie;
}

/// The engine on islands, or on a pool where any GPU is like any other.
struct Run {
  Lie lie;
  replay::Measures measures;
};
Run run_of(const std::vector<TraceJob>& jobs, const replay::ReplayCluster& cluster) {
  const Result<replay::ReplayPolicy> policy = replay::parse_policy("fifo");
  Watcher watcher(jobs);
  replay::ReplayOptions options{.cluster = cluster};
  if (cluster.pool == 0) options.watcher = &watcher;
  const Result<replay::ReplayOutcome> outcome = replay::replay_engine(jobs, *policy, options);
  return {.lie = cluster.pool == 0 ? watcher.lie : first_free(jobs, *outcome),
          .measures = replay::measures_of(jobs, *outcome, kGpus)};
}

/// Prints the medians of the trace as it is and of shaken ones, and returns that of the weakest link.
double print(const char* what, const std::vector<TraceJob>& jobs, const replay::ReplayCluster& cluster,
             int runs) {
  std::vector<double> small, large, weakest, wait, completion, used;
  for (int i = 0; i <= runs; ++i) {
    const Run run = i == 0 ? run_of(jobs, cluster)
                           : run_of(replay::shaken(jobs, minutes(1), static_cast<uint64_t>(i)), cluster);
    small.push_back(Lie::share(run.lie.small_inside, run.lie.small));
    large.push_back(Lie::share(run.lie.large_inside, run.lie.large));
    weakest.push_back(run.lie.weakest());
    wait.push_back(run.measures.wait_s.mean);
    completion.push_back(run.measures.completion_s.mean);
    used.push_back(100 * run.measures.utilisation);
  }
  const auto median = [](const std::vector<double>& values) { return quality::spread_of(values).median; };
  std::printf("%-34s %9.1f %9.1f %10.1f %10.0f %12.0f %8.1f   %.0f to %.0f\n", what, median(small),
              median(large), median(weakest), median(wait), median(completion), median(used),
              quality::spread_of(wait).low, quality::spread_of(wait).high);
  return median(weakest);
}

void compare(const std::vector<TraceJob>& jobs, const char* title, int runs) {
  std::printf("\n%s: %zu jobs; medians of %d runs\n%-34s %9s %9s %10s %10s %12s %8s   %s\n", title,
              jobs.size(), runs + 1, "", "island %", "rack %", "link GB/s", "wait s", "completion s",
              "used %", "wait, all runs");
  const replay::ReplayCluster islands{.nodes = kIslands, .gpus_per_node = kGpusOfIsland, .gangs = true};
  replay::ReplayCluster racks = islands;
  racks.racks = kRacks;
  replay::ReplayCluster required = racks;
  required.rack_required = true;
  const double blind = print("any free GPUs, the first ones", jobs, {.pool = kGpus}, runs);
  print("ours, racks not named", jobs, islands, runs);
  const double ours = print("ours", jobs, racks, runs);
  print("ours, one rack demanded", jobs, required, runs);
  quality::print_note(std::string("gangs' weakest link, ") + title,
                      "blind: " + quality::grouped(blind, 1) + " GB/s",
                      "ours: " + quality::grouped(ours, 1) + " GB/s");
}

int run(int runs) {
  int status = 0;
  const std::optional<replay::Trace> trace = quality::open_trace("itp", "/itp/cluster02.csv.gz", status);
  if (!trace.has_value()) return status;
  compare(trace->jobs, "ITP cluster02 as recorded", runs);
  std::vector<TraceJob> closer = trace->jobs;
  for (TraceJob& job : closer) job.submitted.ns /= 2;
  compare(closer, "arrivals twice as close", runs);
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  return gpusched::quality::run_experiment(argc, argv, "islands", gpusched::run);
}
