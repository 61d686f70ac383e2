// rooms: published replay predict engine model base
//
// Microsoft's 2021 jobs of three clusters, each as one pool of alike GPUs, on the real engine: who waits how
// long under which policy. The traces name neither users nor limits; the pools are stated here, not
// published.
#include <cstdlib>

#include "experiment.h"
#include "published/gang_replay.h"
#include "replay/report/measures.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/trace/formats.h"
#include "table.h"

namespace gpusched {
namespace {

using replay::TraceJob;

struct Cluster {
  const char* name;
  int64_t gpus;
};
constexpr Cluster kClusters[] = {{"cluster02", 112}, {"cluster04", 576}, {"cluster07", 304}};

struct Row {
  const char* what;
  const char* policy;
};
/// As the engine runs them: nobody is stopped for anybody of equal rank.
constexpr Row kRows[] = {{"FIFO, nothing passes but what fits", "fifo+reservations=0"},
                         {"EASY, limits unknown", "fifo+limits"},
                         {"EASY, learned run times (ours)", "fifo"},
                         {"EASY, clairvoyant", "fifo+oracle"}};

void print(const char* what, const replay::Measures& of) {
  std::printf("%-44s %12.0f %12.0f %12.0f %10.2f %10.2f %10.1f %10llu\n", what, of.wait_s.mean,
              of.completion_s.mean, of.completion_s.p99, of.bounded_slowdown, of.unfairness.p99,
              of.unfairness.max, static_cast<unsigned long long>(of.preemptions));
}

template <typename Order>
replay::Measures preemptive(const std::vector<TraceJob>& jobs, int64_t gpus, Order order) {
  const replay::GangRules rules{.nodes = static_cast<uint32_t>(gpus / 8),
                                .gpus_per_node = 8,
                                .preemptive = true,
                                .pass_blocked = true,
                                .restart = seconds(46)};
  return replay::measures_of(jobs, replay::replay_gangs(jobs, rules, order), gpus);
}

int run(int runs) {
  for (const Cluster& cluster : kClusters) {
    int status = 0;
    const std::optional<replay::Trace> trace =
        quality::open_trace("itp", std::string("/itp/") + cluster.name + ".csv.gz", status);
    if (!trace.has_value()) return status;
    std::printf("\nITP %s: %zu jobs, %lld GPUs\n%-44s %12s %12s %12s %10s %10s %10s %10s\n", cluster.name,
                trace->jobs.size(), static_cast<long long>(cluster.gpus), "seconds", "wait", "completion",
                "p99", "slowdown", "unfair p99", "worst", "preempted");
    for (const Row& row : kRows) {
      const Result<replay::ReplayPolicy> policy = replay::parse_policy(row.policy);
      const auto replayed = [&](const std::vector<TraceJob>& jobs) {
        const Result<replay::ReplayOutcome> outcome =
            replay::replay_engine(jobs, *policy, {.cluster = {.pool = cluster.gpus}});
        return replay::measures_of(jobs, *outcome, cluster.gpus);
      };
      const replay::Measures as_it_is = replayed(trace->jobs);
      print(row.what, as_it_is);
      std::vector<double> completions;
      for (int i = 0; i < runs; ++i)
        completions.push_back(replayed(replay::shaken(trace->jobs, minutes(1), static_cast<uint64_t>(i) + 1))
                                  .completion_s.mean);
      const quality::Spread spread = quality::spread_of(completions);
      quality::print_note(std::string("ITP ") + cluster.name + ", " + row.what, "mean completion, shaken",
                          quality::grouped(spread.median) + " s");
    }
    print("attained service, preemptive, 46 s a restart",
          preemptive(trace->jobs, cluster.gpus, replay::AttainedLevels(14'400, 6000)));
    print("SRSF, oracle, preemptive, 46 s a restart",
          preemptive(trace->jobs, cluster.gpus, replay::LeastService()));
  }
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  return gpusched::quality::run_experiment(argc, argv, "itp", gpusched::run);
}
