#include "api/views/health_metrics.h"

#include <cstdint>
#include <string_view>

namespace gpusched::api {

void add_health(const State& state, MetricsView& metrics) {
  int64_t faulty = 0;
  int64_t noted = 0;
  int64_t hot = 0;
  int64_t suspect = 0;
  int64_t drained = 0;
  for (const Node& node : state.nodes) {
    suspect += node.suspect_detail.empty() ? 0 : 1;
    drained += node.availability == Availability::kDraining && node.availability_by == "scheduler" ? 1 : 0;
    for (const Device& device : node.devices) {
      faulty += device.fault >= FaultClass::kDrain ? 1 : 0;
      noted += device.fault == FaultClass::kNote ? 1 : 0;
      hot += device.hot ? 1 : 0;
    }
  }
  int64_t warned = 0;
  for (const auto& [key, attempt] : state.attempts) {
    const Job* job = state.jobs.find(attempt.job);
    warned += job != nullptr && !attempt.abandoned && job->watch != WatchdogFinding::kNone ? 1 : 0;
  }
  const auto gauge = [&metrics](std::string_view name, std::string_view help, int64_t value) {
    metrics.counters.push_back({.name = name, .type = "gauge", .help = help, .value = value});
  };
  gauge("gpus_faulty", "GPUs that a fault keeps from new work.", faulty);
  gauge("gpus_noted", "GPUs with a fault that is only noted.", noted);
  gauge("gpus_hot", "GPUs that are too hot for new work.", hot);
  gauge("nodes_suspect", "Nodes that an operator should look at.", suspect);
  gauge("nodes_drained_by_themselves", "Nodes that the scheduler took out of service.", drained);
  gauge("jobs_warned", "Running jobs that are warned about: idle, hung, over their share.", warned);
}

void add_keeping(const HostHealth& health, MetricsView& metrics) {
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    metrics.counters.push_back(
        {.name = name, .type = type, .help = help, .value = static_cast<int64_t>(value)});
  };
  add("snapshots_written_total", "counter", "Snapshots written, read back and proven.",
      health.snapshots.written);
  add("snapshots_failed_total", "counter", "Snapshots that could not be written.", health.snapshots.failed);
  add("snapshots_unprovable_total", "counter",
      "Snapshots that were thrown away: they did not read back as the state.", health.snapshots.unprovable);
  add("snapshots_refused", "gauge", "Snapshots that the last start could not use.", health.refused_snapshots);
  add("snapshot_bytes", "gauge", "Size of the newest snapshot; 0 before the first one.",
      health.snapshots.last_bytes);
  metrics.counters.push_back({.name = "clock_ahead_seconds",
                              .type = "gauge",
                              .help = "How far the wall clock is ahead of the journal's time.",
                              .value = health.clock_gap.ms() / 1'000});
  if (health.free_bytes)
    add("data_free_bytes", "gauge", "Free bytes on the volume of the data folder.", *health.free_bytes);
}

}  // namespace gpusched::api
