#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "node/agent/metrics_port.h"
#include "node/core/node_core.h"
#include "node/ports/ports.h"
#include "ops/process_usage.h"

namespace gpusched {

/// The figures that an agent's metrics port tells.
struct AgentFigures {
  struct Device {
    std::string uuid, model;
    DeviceReading reading;
  };
  std::string node_name, version;
  bool connected = false;  ///< Registered at the scheduler.
  std::size_t attempts_running = 0;
  std::size_t attempts_known = 0;  ///< With those that ended and are kept.
  std::size_t unacknowledged = 0;  ///< Reports that the scheduler has not acknowledged yet.
  std::vector<Device> devices;     ///< By index.
};

/// The agent's metrics port, and the figures for it. `note` belongs to the agent's thread.
class AgentMetrics {
 public:
  /// `known` has what does not change: names, and devices without readings.
  static Result<std::unique_ptr<AgentMetrics>> open(const MetricsPortOptions& options, AgentFigures known);

  /// Takes the figures of now, at most once in a second.
  void note(const NodeCore& core, Time now);
  uint16_t port() const { return port_->port(); }

 private:
  explicit AgentMetrics(AgentFigures known) : figures_(std::move(known)) {}
  std::string text() const;

  Time due_;
  mutable std::mutex mutex_;  // Guards `figures_`.
  AgentFigures figures_;
  std::unique_ptr<MetricsPort> port_;  ///< Ends first: it reads the figures.
};

/// In Prometheus' text format. Times are in seconds, sizes in bytes; what a driver does not tell is left out.
std::string agent_metrics_text(const AgentFigures& figures, const ProcessUsage& usage);

}  // namespace gpusched
