// rooms: replay predict engine model base
//
// KTH-SP2 on the real engine, without the event rules of the published simulators: what a user of the
// scheduler would have had. One pool of 100 processors, one tenant.
#include <cstdlib>

#include "experiment.h"
#include "replay/report/measures.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/trace/swf.h"
#include "table.h"

namespace gpusched {
namespace {

using replay::TraceJob;

constexpr double kEasy = 92.576540;          ///< Published, with users' limits.
constexpr double kEasyPlusPlus = 63.500677;  ///< Published, with predictions.

double slowdown(const std::vector<TraceJob>& jobs, const char* text) {
  const Result<replay::ReplayPolicy> policy = replay::parse_policy(text);
  const Result<replay::ReplayOutcome> outcome =
      replay::replay_engine(jobs, *policy, {.cluster = {.pool = 100}});
  return replay::measures_of(jobs, *outcome, 100).bounded_slowdown;
}

int run(int runs) {
  int status = 0;
  const std::optional<replay::Trace> trace = quality::open_trace("swf", "/kth/KTH-SP2.swf.gz", status);
  if (!trace.has_value()) return status;
  std::printf(
      "KTH-SP2 on the real engine, average bounded slowdown, as it is and %d runs shaken by up to 60 s\n",
      runs);
  const auto measure = [&](const char* policy) {
    std::vector<double> values;
    for (int i = 0; i < runs; ++i)
      values.push_back(
          slowdown(replay::shaken(trace->jobs, minutes(1), static_cast<uint64_t>(i) + 1), policy));
    const quality::Spread spread = quality::spread_of(values);
    std::printf("%-32s %8.3f   %8.3f .. %8.3f .. %8.3f\n", policy, slowdown(trace->jobs, policy), spread.low,
                spread.median, spread.high);
    return spread.median;
  };
  measure("fifo+reservations=0");
  const double easy = slowdown(trace->jobs, "fifo+limits");
  measure("fifo+limits");
  measure("fifo");
  const double shortest = measure("fifo+jobs=shortest");
  measure("fifo+jobs=shortest+oracle");
  bool met = quality::print_row("KTH-SP2, real engine, EASY by limits (published EASY)",
                                "<= " + quality::grouped(kEasy, 3) + " + 1 %", quality::grouped(easy, 3),
                                easy < kEasy * 1.01);
  met &= quality::print_row("KTH-SP2, real engine, learned, shortest (published EASY++)",
                            "< " + quality::grouped(kEasyPlusPlus, 3), quality::grouped(shortest, 3),
                            shortest < kEasyPlusPlus);
  return met ? 0 : 1;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  return gpusched::quality::run_experiment(argc, argv, "engine", gpusched::run);
}
