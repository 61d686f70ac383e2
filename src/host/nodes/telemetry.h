#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "gpusched/v1/node.pb.h"
#include "host/nodes/connections.h"
#include "host/nodes/rules/heat.h"

namespace gpusched {

/// Latest figures of a node by its agent. Never journaled.
struct NodeTelemetry {
  struct Device {
    int32_t utilization_percent = 0;
    int64_t memory_used_mb = 0;
    int32_t temperature_celsius = 0;
    int32_t power_watts = 0;
    std::string draining_evidence;  ///< Why it is not released yet.
  };
  std::vector<Device> devices;    ///< By the state's slot.
  double cpu_utilization = 0;     ///< 0..1
  double memory_utilization = 0;  ///< 0..1
  bool connected = false;
  std::chrono::steady_clock::time_point heard = {};  ///< When it came; never: the epoch.
  /// Activities of attempts that were ordered and do not run yet, such as pulling an image.
  std::map<AttemptKey, std::string> preparing;
  /// Where a service's replica is reached.
  struct Endpoint {
    uint32_t port = 0;
    std::optional<bool> ready;  ///< Last answer of its probe; absent: it has none, or no answer yet.
    std::string detail;         ///< Why it is not ready.
  };
  std::map<AttemptKey, Endpoint> endpoints;
};

/// The newest telemetry of every node, for readers on other threads. Thread-safe.
class TelemetryTable {
 public:
  void set(NodeId node, NodeTelemetry telemetry);
  void set_connected(NodeId node, bool connected);
  void set_evidence(NodeId node, uint32_t device, std::string evidence);
  NodeTelemetry get(NodeId node) const;
  /// Nothing: the node told none for the attempt.
  std::optional<NodeTelemetry::Endpoint> endpoint(NodeId node, const AttemptKey& key) const;
  void forget(NodeId node);

 private:
  mutable std::mutex mutex_;
  std::map<NodeId, NodeTelemetry> nodes_;
};

namespace hub {

/// Figures from heartbeats: for readers, where services are reached, GPUs that became too hot for new work or
/// have cooled, and work that jobs have saved.
class Telemetry {
 public:
  Telemetry(const Hooks& hooks, Connections& connections, HeatLimits heat)
      : hooks_(hooks), connections_(connections), heat_(heat) {}

  const std::shared_ptr<TelemetryTable>& table() const { return table_; }
  void note_figures(const Connection& connection, const v1::Heartbeat& message);
  void note_heat(Connection& connection, const v1::Heartbeat& message);
  void note_saved(Connection& connection, const v1::Heartbeat& message);

 private:
  void take_endpoints(const Connection& connection, const v1::Heartbeat& message,
                      NodeTelemetry& telemetry) const;

  const Hooks& hooks_;
  Connections& connections_;
  HeatLimits heat_;
  std::shared_ptr<TelemetryTable> table_ = std::make_shared<TelemetryTable>();
};

}  // namespace hub
}  // namespace gpusched
