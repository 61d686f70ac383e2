#include "node/agent/agent_metrics.h"

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text/prometheus_text.h"

namespace gpusched {
namespace {

constexpr double kMebibyte = 1 << 20;

/// As many digits as it needs.
std::string digits_of(double value) {
  if (value == static_cast<double>(static_cast<int64_t>(value)))
    return std::to_string(static_cast<int64_t>(value));
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.6f", value);
  return buffer;
}

/// A family of one sample, if there is a value.
void add_figure(PrometheusText& text, std::string_view name, std::string_view type, std::string_view help,
                std::optional<double> value) {
  if (!value) return;
  text.family(name, type, help);
  text.sample(name).number(digits_of(*value));
}

void add_devices(const AgentFigures& figures, PrometheusText& text) {
  using Value = std::function<std::optional<double>(const DeviceReading&)>;
  const auto each = [&](std::string_view name, std::string_view help, const Value& value_of) {
    text.family(name, "gauge", help);
    for (std::size_t i = 0; i < figures.devices.size(); ++i) {
      const AgentFigures::Device& device = figures.devices[i];
      const std::optional<double> value = value_of(device.reading);
      if (!value) continue;
      text.sample(name)
          .label("gpu", figures.node_name + "-gpu-" + std::to_string(i))
          .label("uuid", device.uuid)
          .label("model", device.model)
          .number(digits_of(*value));
    }
  };
  const auto known = [](const std::optional<int32_t>& value) {
    return value ? std::optional<double>(*value) : std::nullopt;
  };
  each("gpu_agent_gpu_healthy", "1 while the driver reports no error of the GPU.",
       [](const DeviceReading& r) { return r.condition == v1::DEVICE_CONDITION_OK ? 1.0 : 0.0; });
  each("gpu_agent_gpu_utilization", "Utilization of the GPU, 0 to 1.", [&](const DeviceReading& r) {
    const std::optional<double> percent = known(r.utilization_percent);
    return percent ? std::optional(*percent / 100) : std::nullopt;
  });
  each("gpu_agent_gpu_memory_used_bytes", "Memory of the GPU that is in use.",
       [](const DeviceReading& r) { return static_cast<double>(r.memory_used_mb) * kMebibyte; });
  each("gpu_agent_gpu_temperature_celsius", "Temperature of the GPU.",
       [&](const DeviceReading& r) { return known(r.temperature_celsius); });
  each("gpu_agent_gpu_power_watts", "Power that the GPU draws.", [](const DeviceReading& r) {
    return r.power_watts > 0 ? std::optional<double>(r.power_watts) : std::nullopt;
  });
}

}  // namespace

Result<std::unique_ptr<AgentMetrics>> AgentMetrics::open(const MetricsPortOptions& options,
                                                         AgentFigures known) {
  std::unique_ptr<AgentMetrics> made(new AgentMetrics(std::move(known)));
  Result<std::unique_ptr<MetricsPort>> port =
      MetricsPort::open(options, [metrics = made.get()] { return metrics->text(); });
  if (!port) return port.error();
  made->port_ = std::move(*port);
  return made;
}

void AgentMetrics::note(const NodeCore& core, Time now) {
  if (now < due_) return;
  due_ = now + seconds(1);
  const std::lock_guard lock(mutex_);
  figures_.connected = core.registered();
  figures_.attempts_running = core.running_count();
  figures_.attempts_known = core.known_count();
  figures_.unacknowledged = core.unacknowledged_count();
  for (std::size_t i = 0; i < figures_.devices.size(); ++i)
    figures_.devices[i].reading = core.last_reading(static_cast<uint32_t>(i));
}

std::string AgentMetrics::text() const {
  const std::lock_guard lock(mutex_);
  return agent_metrics_text(figures_, process_usage());
}

std::string agent_metrics_text(const AgentFigures& figures, const ProcessUsage& usage) {
  PrometheusText text;
  text.family("gpu_agent_build_info", "gauge", "Always 1; the labels identify the program and its node.");
  text.sample("gpu_agent_build_info")
      .label("version", figures.version)
      .label("node", figures.node_name)
      .value(1);
  add_figure(text, "gpu_agent_connected", "gauge", "1 while the agent is registered with its scheduler.",
             figures.connected ? 1 : 0);
  add_figure(text, "gpu_agent_attempts_running", "gauge", "Attempts that run on this node.",
             static_cast<double>(figures.attempts_running));
  add_figure(text, "gpu_agent_attempts_known", "gauge",
             "Attempts whose records this node keeps, running and ended.",
             static_cast<double>(figures.attempts_known));
  add_figure(text, "gpu_agent_reports_unacknowledged", "gauge",
             "Reports that the scheduler has not acknowledged yet.",
             static_cast<double>(figures.unacknowledged));
  add_devices(figures, text);
  add_figure(text, "process_cpu_seconds_total", "counter", "CPU time used by the agent.", usage.cpu_seconds);
  add_figure(text, "process_resident_memory_bytes", "gauge", "Resident memory of the agent.",
             usage.resident_bytes);
  add_figure(text, "process_virtual_memory_bytes", "gauge", "Address space of the agent.",
             usage.virtual_bytes);
  add_figure(text, "process_open_fds", "gauge", "Open files and connections of the agent.", usage.open_files);
  add_figure(text, "process_max_fds", "gauge", "Maximum number of open files and connections of the agent.",
             usage.max_files);
  add_figure(text, "process_start_time_seconds", "gauge", "Start time of the agent, in seconds since 1970.",
             usage.start_time_seconds);
  return text.take();
}

}  // namespace gpusched
