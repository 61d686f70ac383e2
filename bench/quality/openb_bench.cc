// rooms: published replay engine model base
//
// openb: 1,213 GPU nodes fill up with tasks that never end, by the protocol of the published comparison (Weng
// et al. 2023, USENIX ATC): how much of 6,212 GPUs is allocated when 100 % and 130 % of that have arrived.
// Published means of ten seeds against ours, an upper bound, and our own policy, which knows nothing of the
// workload beforehand.
//
//   openb [WORKLOAD ..]   the table, of some workloads only
//   openb moves           ours, if a running task may be moved for one that fits nowhere, beside the table
//   openb speed           placements a second of processor time, on one thread, tables learned included
#include <cmath>
#include <ctime>
#include <map>
#include <memory>

#include "published/placement_moves.h"
#include "published/placement_replay.h"
#include "replay/trace/csv.h"
#include "replay/trace/placement_trace.h"
#include "replay/trace/traces_folder.h"
#include "table.h"

namespace gpusched {
namespace {

using policy::PlacementRule;
using policy::PopularShape;
using policy::TaskShape;
using replay::Inflation;
using replay::PlacementTrace;
using replay::Placer;

constexpr const char* kWorkloads[] = {"default",     "cpu100",    "cpu200",     "gpushare40",
                                      "gpushare100", "gpuspec10", "multigpu20", "multigpu50"};
constexpr uint64_t kFirstSeed = 42;
constexpr uint64_t kSeeds = 10;
constexpr int64_t kMarks[] = {100, 130};
constexpr double kTolerance = 0.3;
constexpr const char* kPublished[] = {"Random", "GpuPacking", "BestFit", "FGD"};

/// Chosen on the workload `default`, frozen for all.
constexpr policy::LeastValueLost::Params kOurs{};

/// Per cent at each mark.
struct Share {
  double at[2] = {0, 0};
};

std::string text_of(const Share& share) {
  return quality::grouped(share.at[0], 2) + " / " + quality::grouped(share.at[1], 2);
}

std::unique_ptr<Placer> placer_of(const std::string& name, const PlacementTrace& trace,
                                  const Inflation& inflation, uint64_t seed) {
  const auto by = [&](std::unique_ptr<PlacementRule> rule) {
    return std::make_unique<replay::RulePlacer>(inflation.nodes, std::move(rule));
  };
  if (name == "Random") return std::make_unique<replay::RandomPlacer>(inflation.nodes, seed);
  if (name == "GpuPacking") return by(std::make_unique<policy::GpuPacking>());
  if (name == "BestFit") return by(std::make_unique<policy::PublishedBestFit>());
  if (name == "FGD")
    return by(std::make_unique<policy::FragmentationGradient>(replay::known_shapes(trace, false)));
  if (name == "known")
    return by(std::make_unique<policy::LeastValueLost>(replay::known_shapes(trace, true), kOurs));
  return std::make_unique<replay::LearningPlacer>(inflation.nodes, kOurs);
}

/// Ours, and where a task fits nowhere one other may be moved for it: bounded migration.
void compare_moves(const std::string& workload, const PlacementTrace& trace) {
  constexpr uint64_t kPerMille = 50;
  Share mean;
  double moves = 0;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    const Inflation inflation = replay::inflate(trace, seed, kMarks[1]);
    replay::MovingPlacer placer(inflation.nodes, kOurs, kPerMille);
    const replay::InflationOutcome outcome = replay::replay_inflation(inflation, placer, kMarks);
    for (std::size_t i = 0; i < 2; ++i) {
      mean.at[i] += 100.0 * static_cast<double>(outcome.allocated_milli[i]) /
                    static_cast<double>(trace.capacity_milli) / static_cast<double>(kSeeds);
    }
    moves += 1000.0 * static_cast<double>(placer.moves()) / static_cast<double>(outcome.placed) /
             static_cast<double>(kSeeds);
  }
  quality::print_note("openb " + workload + ", ours with moves",
                      quality::grouped(moves, 1) + " moves per 1,000", text_of(mean));
}

Share mean_of(const std::string& name, const PlacementTrace& trace) {
  Share mean;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    const Inflation inflation = replay::inflate(trace, seed, kMarks[1]);
    const std::unique_ptr<Placer> placer = placer_of(name, trace, inflation, seed);
    const replay::InflationOutcome outcome = replay::replay_inflation(inflation, *placer, kMarks);
    for (std::size_t i = 0; i < 2; ++i) {
      mean.at[i] += 100.0 * static_cast<double>(outcome.allocated_milli[i]) /
                    static_cast<double>(trace.capacity_milli) / static_cast<double>(kSeeds);
    }
  }
  return mean;
}

/// The most that can be allocated of these arrivals, in thousandths of devices, by a relaxation that may
/// choose freely whom to place and sees no node, CPU, memory or model: only devices, and that shares on a
/// device do not exceed it. The linear program's Lagrangian dual: with any price for a share of each size, at
/// most
///   devices x (the dearest filling of one) + sum over tasks of max(0, size - price).
/// The prices are found by subgradients; whatever they are, the bound holds.
double bound_of(std::span<const TaskShape> arrivals, int64_t capacity_milli) {
  constexpr int kGrain = 10;
  constexpr int kGrains = policy::kWholeMilli / kGrain;
  constexpr int kRounds = 20'000;
  std::map<int, double> demand;  // Devices wanted, by size in grains, rounded down: that only relaxes.
  std::map<int, double> milli;
  for (const TaskShape& task : arrivals) {
    if (task.gpu_count == 0) continue;
    demand[task.gpu_milli / kGrain] += task.gpu_count;
    milli[task.gpu_milli / kGrain] += static_cast<double>(task.total_milli());
  }
  std::vector<int> sizes;
  std::vector<double> prices;
  for (const auto& [size, count] : demand) {
    sizes.push_back(size);
    prices.push_back(milli[size] / count);
  }
  const double devices = static_cast<double>(capacity_milli) / policy::kWholeMilli;
  double best = static_cast<double>(capacity_milli);
  std::vector<double> best_prices = prices;
  std::vector<double> walked;
  double step = 400;
  for (int round = 0; round < kRounds; ++round) {
    double worth[kGrains + 1] = {};
    int first[kGrains + 1];
    first[0] = -1;
    for (int hole = 1; hole <= kGrains; ++hole) {
      worth[hole] = worth[hole - 1];
      first[hole] = -1;
      for (std::size_t i = 0; i < sizes.size() && sizes[i] <= hole; ++i) {
        const double here = sizes[i] == 0 ? 0 : worth[hole - sizes[i]] + prices[i];
        if (here > worth[hole]) {
          worth[hole] = here;
          first[hole] = static_cast<int>(i);
        }
      }
    }
    std::vector<double> used(sizes.size());
    for (int hole = kGrains; hole > 0;) {
      const int i = first[hole];
      if (i < 0) {
        --hole;
        continue;
      }
      used[static_cast<std::size_t>(i)] += devices;
      hole -= sizes[static_cast<std::size_t>(i)];
    }
    double value = devices * worth[kGrains];
    for (std::size_t i = 0; i < sizes.size(); ++i)
      value += demand[sizes[i]] * std::max(0.0, milli[sizes[i]] / demand[sizes[i]] - prices[i]);
    if (value < best) {
      best = value;
      best_prices = prices;
    }
    // Steps shrink with what was walked (Duchi, Hazan, Singer 2011), and again from the best each quarter.
    if (round % (kRounds / 4) == 0) {
      prices = best_prices;
      walked.assign(sizes.size(), 0);
      step /= 4;
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double count = demand[sizes[i]];
      const double slope = used[i] - (prices[i] < milli[sizes[i]] / count ? count : 0);
      walked[i] += slope * slope;
      if (walked[i] > 0) prices[i] = std::max(0.0, prices[i] - step * slope / std::sqrt(walked[i]));
    }
  }
  return 100.0 * best / static_cast<double>(capacity_milli);
}

Share mean_bound(const PlacementTrace& trace) {
  Share mean;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    const Inflation inflation = replay::inflate(trace, seed, kMarks[1]);
    std::size_t i = 0;
    int64_t arrived = 0;
    for (std::size_t count = 0; count < inflation.arrivals.size() && i < 2; ++count) {
      arrived += inflation.arrivals[count].total_milli();
      if (arrived * 100 < trace.capacity_milli * kMarks[i]) continue;
      const std::span<const TaskShape> so_far(inflation.arrivals.data(), count + 1);
      mean.at[i++] += bound_of(so_far, trace.capacity_milli) / static_cast<double>(kSeeds);
    }
  }
  return mean;
}

using Published = std::map<std::pair<std::string, std::string>, Share>;

Result<Published> read_published(const std::string& path) {
  Result<replay::CsvFile> file =
      replay::CsvFile::open(path, {"workload", "policy", "at_100_percent_arrived", "at_130_percent_arrived"});
  if (!file) return file.error();
  Published published;
  while (true) {
    const Result<bool> more = file->next();
    if (!more) return more.error();
    if (!*more) return published;
    Share share;
    for (std::size_t i = 0; i < 2; ++i) share.at[i] = std::atof(std::string(file->field(2 + i)).c_str());
    published[{std::string(file->field(0)), std::string(file->field(1))}] = share;
  }
}

Result<PlacementTrace> read_workload(const std::string& name) {
  const std::string folder = replay::traces_folder() + "/openb/openb_";
  return replay::read_openb_placement(folder + "node_list_gpu_node.csv.gz",
                                      folder + "pod_list_" + name + ".csv.gz");
}

/// True: as it must be.
bool compare(const std::string& workload, const PlacementTrace& trace, Published& published) {
  bool all_met = true;
  for (const char* const policy : kPublished) {
    const Share wanted = published[{workload, policy}];
    const Share ours = mean_of(policy, trace);
    const bool met = std::fabs(ours.at[0] - wanted.at[0]) <= kTolerance &&
                     std::fabs(ours.at[1] - wanted.at[1]) <= kTolerance;
    all_met &= quality::print_row("openb " + workload + ", " + policy, text_of(wanted) + " +- 0.30",
                                  text_of(ours), met);
  }
  const Share fgd = published[{workload, "FGD"}];
  const Share bound = mean_bound(trace);
  Share wanted;
  Share half;
  for (std::size_t i = 0; i < 2; ++i) {
    half.at[i] = (fgd.at[i] + bound.at[i]) / 2;
    wanted.at[i] = std::min(fgd.at[i] + kTolerance, half.at[i]);
  }
  const Share ours = mean_of("ours", trace);
  const bool met = ours.at[0] >= wanted.at[0] && ours.at[1] >= wanted.at[1];
  all_met &= quality::print_row("openb " + workload + ", ours, learning", ">= " + text_of(wanted),
                                text_of(ours), met);
  quality::print_note("openb " + workload + ", ours, shapes known", "", text_of(mean_of("known", trace)));
  quality::print_note("openb " + workload + ", half of the way; upper bound", text_of(half), text_of(bound));
  std::fflush(stdout);
  return all_met;
}

void time_placing(const char* what, const PlacementTrace& trace, std::size_t copies,
                  const std::string& policy) {
  PlacementTrace larger = trace;
  for (std::size_t i = 1; i < copies; ++i)
    larger.nodes.insert(larger.nodes.end(), trace.nodes.begin(), trace.nodes.end());
  larger.capacity_milli *= static_cast<int64_t>(copies);
  const Inflation inflation = replay::inflate(larger, kFirstSeed, kMarks[0]);
  const std::unique_ptr<Placer> placer = placer_of(policy, larger, inflation, kFirstSeed);
  // By the thread's processor time, which what else runs on the machine does not stretch.
  const std::clock_t begin = std::clock();
  const replay::InflationOutcome outcome = replay::replay_inflation(inflation, *placer, std::span(kMarks, 1));
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const uint64_t asked = outcome.placed + outcome.refused;
  const double rate = static_cast<double>(asked) / seconds;
  const double wanted = larger.nodes.size() > 5'000 ? 5'000 : 20'000;
  quality::print_row(
      "openb speed, " + std::string(what) + ", " + std::to_string(larger.nodes.size()) + " nodes",
      ">= " + quality::grouped(wanted) + "/s",
      quality::grouped(rate) + "/s of " + quality::grouped(static_cast<double>(asked)), rate >= wanted);
}

int run(const std::vector<std::string>& names) {
  const std::string folder = replay::traces_folder() + "/openb";
  Result<Published> published = read_published(folder + "/published_gpu_allocation_percent.csv");
  if (!published.ok()) {
    if (published.error().code != ErrorCode::kNotFound)
      return std::fprintf(stderr, "%s\n", published.error().message.c_str()), 1;
    std::printf("skipped: no %s; GPUSCHED_TRACES names the folder of traces\n", folder.c_str());
    return 0;
  }
  const bool speed = names.size() == 1 && names.front() == "speed";
  const bool moves = names.size() == 1 && names.front() == "moves";
  const std::vector<std::string> all(std::begin(kWorkloads), std::end(kWorkloads));
  std::printf(
      "openb: per cent of 6,212 GPUs allocated when 100 %% / 130 %% have arrived, means of seeds 42 to 51\n");
  bool all_met = true;
  for (const std::string& name : speed                    ? std::vector<std::string>{"default"}
                                 : moves || names.empty() ? all
                                                          : names) {
    const Result<PlacementTrace> trace = read_workload(name);
    if (!trace.ok()) return std::fprintf(stderr, "%s\n", trace.error().message.c_str()), 1;
    if (moves) {
      compare_moves(name, *trace);
      continue;
    }
    if (!speed) {
      all_met &= compare(name, *trace, *published);
      continue;
    }
    constexpr std::size_t kLarge = 9;  // 10,917 nodes.
    for (const std::size_t copies : {std::size_t{1}, kLarge}) {
      time_placing("FGD", *trace, copies, "FGD");
      time_placing("ours, learning", *trace, copies, "ours");
      time_placing("best fit", *trace, copies, "BestFit");
    }
  }
  return all_met ? 0 : 1;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) { return gpusched::run(std::vector<std::string>(argv + 1, argv + argc)); }
