#include "host/nodes/telemetry.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/text/plain_words.h"
#include "host/nodes/rules/wire.h"

namespace gpusched {
namespace {

constexpr std::size_t kProgressBytesMax = 1'024;
constexpr uint32_t kPortMax = 65'535;

}  // namespace

void TelemetryTable::set(NodeId node, NodeTelemetry telemetry) {
  const std::lock_guard lock(mutex_);
  NodeTelemetry& stored = nodes_[node];
  // Evidence comes apart from the figures and stays until the device is released.
  for (std::size_t i = 0; i < telemetry.devices.size() && i < stored.devices.size(); ++i) {
    telemetry.devices[i].draining_evidence = std::move(stored.devices[i].draining_evidence);
  }
  // A restarted agent knows the ports before it has probed them: what was said of them before holds until
  // then.
  for (auto& [key, endpoint] : telemetry.endpoints) {
    const auto known = stored.endpoints.find(key);
    if (endpoint.ready || known == stored.endpoints.end() || known->second.port != endpoint.port) continue;
    endpoint = std::move(known->second);
  }
  stored = std::move(telemetry);
  stored.heard = std::chrono::steady_clock::now();
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

std::optional<NodeTelemetry::Endpoint> TelemetryTable::endpoint(NodeId node, const AttemptKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return std::nullopt;
  const auto found = it->second.endpoints.find(key);
  return found == it->second.endpoints.end() ? std::nullopt : std::optional(found->second);
}

void TelemetryTable::forget(NodeId node) {
  const std::lock_guard lock(mutex_);
  nodes_.erase(node);
}

namespace hub {
namespace {

/// A node speaks for its own members.
bool is_member_of(const Connection& connection, const Attempt* attempt, uint32_t member) {
  return attempt != nullptr && member < attempt->members.size() &&
         attempt->members[member].node == connection.node;
}

}  // namespace

void Telemetry::note_figures(const Connection& connection, const v1::Heartbeat& message) {
  NodeTelemetry telemetry{.devices = {},
                          .cpu_utilization = message.cpu_utilization(),
                          .memory_utilization = message.memory_utilization(),
                          .connected = true};
  for (const v1::DeviceTelemetry& device : message.devices()) {
    const std::optional<uint32_t> slot = connection.slot_of(device.index());
    if (!slot) continue;
    if (*slot >= telemetry.devices.size()) telemetry.devices.resize(*slot + 1);
    telemetry.devices[*slot].utilization_percent = device.utilization_percent();
    telemetry.devices[*slot].memory_used_mb = device.memory_used_mb();
    telemetry.devices[*slot].temperature_celsius = device.temperature_celsius();
    telemetry.devices[*slot].power_watts = device.power_watts();
  }
  for (const v1::AttemptProgress& progress : message.progress()) {
    if (telemetry.preparing.size() >= limits::kAttemptsPerNodeMax) break;
    const AttemptKey key = from_wire(progress.key());
    if (!is_member_of(connection, hooks_.state().find_attempt(key.job, key.attempt), key.member)) continue;
    telemetry.preparing.emplace(key, plain_words(progress.message(), kProgressBytesMax));
  }
  take_endpoints(connection, message, telemetry);
  table_->set(connection.node, std::move(telemetry));
}

void Telemetry::take_endpoints(const Connection& connection, const v1::Heartbeat& message,
                               NodeTelemetry& telemetry) const {
  for (const v1::AttemptEndpoint& told : message.endpoints()) {
    if (telemetry.endpoints.size() >= limits::kAttemptsPerNodeMax) return;
    const AttemptKey key = from_wire(told.key());
    const Attempt* const attempt = hooks_.state().find_attempt(key.job, key.attempt);
    if (!is_member_of(connection, attempt, key.member) || !attempt->was_placed(Time{told.placed_at_ns()}) ||
        told.port() > kPortMax) {
      continue;
    }
    NodeTelemetry::Endpoint& endpoint = telemetry.endpoints[key];
    endpoint.port = told.port();
    if (told.probed()) endpoint.ready = told.ready();
    endpoint.detail = plain_words(told.detail(), kProgressBytesMax);
  }
}

void Telemetry::note_heat(Connection& connection, const v1::Heartbeat& message) {
  const Node& node = connections_.node_of(connection);
  for (const v1::DeviceTelemetry& device : message.devices()) {
    const std::optional<uint32_t> slot = connection.slot_of(device.index());
    if (!slot || *slot >= node.devices.size() || device.temperature_celsius() == 0) continue;  // Not told.
    HeatMeter& meter = connection.heat[device.index()];
    std::optional<HeatChange> change =
        meter.look(heat_, device.temperature_celsius(), node.devices[*slot].hot);
    if (!change) continue;
    connections_.propose_once(connection, {Ask::kHeat, connection.node.value, *slot, change->hot ? 1 : 0},
                              NoteDeviceHeat{.node = connection.node,
                                             .device = *slot,
                                             .hot = change->hot,
                                             .detail = std::move(change->detail)});
  }
}

void Telemetry::note_saved(Connection& connection, const v1::Heartbeat& message) {
  for (const v1::AttemptSaved& saved : message.saved()) {
    const JobId job{saved.key().job()};
    if (hooks_.state().find_attempt(job, saved.key().attempt()) == nullptr) continue;
    const int64_t bound = limits::kRuntimeMax.ms();
    connections_.propose_once(connection,
                              {Ask::kSaved, connection.node.value, job.value, saved.key().attempt()},
                              CheckpointSaved{.job = job,
                                              .attempt = saved.key().attempt(),
                                              .node = connection.node,
                                              .age = milliseconds(std::clamp(saved.age_ms(), -bound, bound)),
                                              .placed_at = Time{saved.placed_at_ns()}});
  }
}

}  // namespace hub
}  // namespace gpusched
