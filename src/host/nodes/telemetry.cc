#include "host/nodes/node_hub.h"

namespace gpusched {

void TelemetryTable::set(NodeId node, NodeTelemetry telemetry) {
  const std::lock_guard lock(mutex_);
  NodeTelemetry& stored = nodes_[node];
  // Evidence comes apart from the figures and stays until the device is released.
  for (std::size_t i = 0; i < telemetry.devices.size() && i < stored.devices.size(); ++i) {
    telemetry.devices[i].draining_evidence = std::move(stored.devices[i].draining_evidence);
  }
  stored = std::move(telemetry);
}

void TelemetryTable::set_connected(NodeId node, bool connected) {
  const std::lock_guard lock(mutex_);
  nodes_[node].connected = connected;
}

void TelemetryTable::set_evidence(NodeId node, uint32_t device, std::string evidence) {
  const std::lock_guard lock(mutex_);
  NodeTelemetry& stored = nodes_[node];
  if (device >= stored.devices.size()) stored.devices.resize(device + 1);
  stored.devices[device].draining_evidence = std::move(evidence);
}

NodeTelemetry TelemetryTable::get(NodeId node) const {
  const std::lock_guard lock(mutex_);
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? NodeTelemetry{} : it->second;
}

void TelemetryTable::forget(NodeId node) {
  const std::lock_guard lock(mutex_);
  nodes_.erase(node);
}

}  // namespace gpusched
