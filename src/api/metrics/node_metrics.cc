#include "api/metrics/node_metrics.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/contract/names.h"

namespace gpusched::api {
namespace {

constexpr double kMebibyte = 1 << 20;

/// A family of one value for each GPU, collected while other families are, too.
class PerGpu {
 public:
  PerGpu(std::string_view name, std::string_view help) : name_(name), help_(help) {}
  void add(const Node& node, uint32_t index, double value) {
    samples_.push_back({.name = name_,
                        .type = "gauge",
                        .help = help_,
                        .labels = {{"node", node.name}, {"gpu", gpu_name(node.name, index)}},
                        .real = value});
  }
  void write(MetricsView& metrics) { std::ranges::move(samples_, std::back_inserter(metrics.counters)); }

 private:
  std::string_view name_, help_;
  std::vector<MetricsView::Counter> samples_;
};

}  // namespace

void add_nodes(const State& state, const TelemetryTable& telemetry, MetricsView& metrics) {
  const auto now = std::chrono::steady_clock::now();
  std::vector<MetricsView::Counter> heard;
  PerGpu memory("gpu_memory_used_bytes", "Memory of each GPU that is in use, as its node last reported it.");
  PerGpu temperature("gpu_temperature_celsius",
                     "Temperature of each GPU, as its node last reported it; absent if it does not.");
  PerGpu power("gpu_power_watts",
               "Power that each GPU draws, as its node last reported it; absent if it does not.");
  for (const Node& node : state.nodes) {
    const NodeTelemetry last = telemetry.get(node.id);
    if (!node.removed && last.heard.time_since_epoch().count() != 0) {
      heard.push_back(
          {.name = "node_heartbeat_age_seconds",
           .type = "gauge",
           .help = "Time since a node last reported; absent if it has not reported since the start.",
           .labels = {{"node", node.name}},
           .real = std::chrono::duration<double>(now - last.heard).count()});
    }
    for (uint32_t i = 0; i < last.devices.size() && i < node.devices.size(); ++i) {
      const NodeTelemetry::Device& device = last.devices[i];
      metrics.gpus.push_back({.node = node.name,
                              .gpu = gpu_name(node.name, i),
                              .utilization = static_cast<double>(device.utilization_percent) / 100.0});
      memory.add(node, i, static_cast<double>(device.memory_used_mb) * kMebibyte);
      if (device.temperature_celsius != 0) temperature.add(node, i, device.temperature_celsius);
      if (device.power_watts != 0) power.add(node, i, device.power_watts);
    }
  }
  std::ranges::move(heard, std::back_inserter(metrics.counters));
  memory.write(metrics);
  temperature.write(metrics);
  power.write(metrics);
}

}  // namespace gpusched::api
