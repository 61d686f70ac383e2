#include "host/nodes/rules/registration.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/node_labels.h"
#include "base/queue_limits.h"
#include "base/text/host_name.h"
#include "base/text/plain_words.h"
#include "base/utf8.h"
#include "host/nodes/rules/wire.h"
#include "model/topology.h"

namespace gpusched {
namespace hub {
namespace {

/// Takes the links; those that do not fit the devices count as unknown, and a note says so.
void take_topology(const v1::Register& message, RegisterNode& command) {
  command.topology_note = plain_words(message.topology_note(), limits::kLabelBytesMax);
  command.links.assign(message.links().begin(), message.links().end());
  const bool sound =
      command.links.empty() || (command.links.size() == pair_count(command.devices.size()) &&
                                std::all_of(command.links.begin(), command.links.end(),
                                            [](int64_t code) { return Link::is_sound(code); }));
  if (sound) return;
  command.links.clear();
  command.topology_note =
      "the links between the GPUs are unknown: the agent's report does not match its GPUs";
}

/// Takes the agent's labels and adds the node's name as one, by which jobs choose nodes.
void take_labels(const v1::Register& message, RegisterNode& command) {
  std::map<std::string, std::string> labels;
  for (const auto& [name, value] : std::map(message.labels().begin(), message.labels().end())) {
    if (labels.size() + 1 == limits::kNodeLabelsMax) break;
    labels[std::string(utf8_cut(name, limits::kLabelBytesMax))] = utf8_cut(value, limits::kLabelBytesMax);
  }
  labels[std::string(kNodeNameLabel)] = message.node_name();
  for (const auto& [name, value] : labels) command.labels.push_back({.name = name, .value = value});
}

}  // namespace

std::vector<uint32_t> slots_of_offer(const State& state, const v1::Register& offer) {
  const Node* node = state.find_node_named(offer.node_name());
  std::vector<uint32_t> slots;
  uint32_t next = node == nullptr ? 0 : static_cast<uint32_t>(node->devices.size());
  for (const v1::Device& device : offer.devices()) {
    std::optional<uint32_t> known;
    for (uint32_t i = 0; node != nullptr && i < node->devices.size(); ++i) {
      if (node->devices[i].uuid == device.uuid()) known = i;
    }
    slots.push_back(known ? *known : next++);
  }
  return slots;
}

RegisterNode command_of(const State& state, const v1::Register& message) {
  RegisterNode command{
      .name = message.node_name(),
      .instance = message.instance(),
      .boot_id = message.boot_id(),
      .version = std::string(utf8_cut(message.version(), limits::kLabelBytesMax)),
      .cpu_milli = std::clamp<int64_t>(message.cpu_milli(), 0, int64_t{limits::kCpuCoresMax} * 1000),
      .memory_mb = std::clamp<int64_t>(message.memory_mb(), 0, limits::kMegabytesMax),
      .devices = {},
      .attempts = {}};
  for (const v1::Device& device : message.devices()) {
    command.devices.push_back(DeviceOffer{
        .uuid = device.uuid(),
        .model = device.model(),
        .memory_mb = std::clamp<int64_t>(device.memory_mb(), 0, limits::kMegabytesMax),
        .condition = from_wire(device.condition()),
        .detail = plain_words(device.detail(), limits::kLabelBytesMax),
        .numa_node = device.numa_plus_one() > 0 ? std::optional(device.numa_plus_one() - 1) : std::nullopt,
        .pci_bus_id = std::string(utf8_cut(device.pci_bus_id(), limits::kLabelBytesMax)),
        .mig = device.mig()});
  }
  take_topology(message, command);
  const std::vector<uint32_t> slots = slots_of_offer(state, message);
  for (const v1::AttemptOnNode& attempt : message.attempts()) {
    KnownAttempt known{.job = JobId{attempt.key().job()},
                       .attempt = attempt.key().attempt(),
                       .member = attempt.key().member(),
                       .ended = attempt.ended(),
                       .device_mask = 0,
                       .placed_at = Time{attempt.placed_at_ns()}};
    for (const v1::GrantedDevice& granted : attempt.devices()) {
      for (int i = 0; i < message.devices_size(); ++i) {
        const uint32_t slot = slots[static_cast<std::size_t>(i)];
        if (message.devices(i).uuid() != granted.uuid() || slot >= limits::kDevicesPerNodeMax) continue;
        known.device_mask |= uint64_t{1} << slot;
      }
    }
    command.attempts.push_back(known);
  }
  command.machine = std::string(utf8_cut(message.machine(), limits::kLabelBytesMax));
  command.validates = message.validates();
  command.address = message.address();
  for (const std::string& feature : message.features()) {
    if (command.features.size() == limits::kNodeFeaturesMax) break;
    command.features.push_back(std::string(utf8_cut(feature, limits::kLabelBytesMax)));
  }
  std::sort(command.features.begin(), command.features.end());
  take_labels(message, command);
  return command;
}

std::string problem_of(const v1::Register& message) {
  if (message.node_name().empty() || message.node_name().size() > limits::kNameBytesMax) {
    return "the node's name must have 1 to 253 bytes";
  }
  if (message.instance().empty() || message.boot_id().empty()) return "instance and boot_id are missing";
  if (message.instance().size() > limits::kNameBytesMax || message.boot_id().size() > limits::kNameBytesMax)
    return "instance and boot_id must have at most 253 bytes";
  if (message.attempts_size() > static_cast<int>(limits::kAttemptsPerRegistration)) {
    return "the agent knows " + std::to_string(message.attempts_size()) + " attempts, but at most " +
           std::to_string(limits::kAttemptsPerRegistration) +
           " can be registered; remove those that have ended from its data folder";
  }
  // It becomes a word in files and variables of jobs.
  const bool plain = std::all_of(message.address().begin(), message.address().end(),
                                 [](unsigned char byte) { return byte > ' ' && byte < 0x7F; });
  if (!plain || message.address().size() > limits::kNameBytesMax)
    return "the node's address must have at most 253 visible characters";
  if (message.devices_size() > static_cast<int>(limits::kDevicesPerNodeMax))
    return "a node has at most 64 devices";
  const bool short_names =
      std::all_of(message.devices().begin(), message.devices().end(), [](const v1::Device& device) {
        return device.uuid().size() <= limits::kLabelBytesMax &&
               device.model().size() <= limits::kLabelBytesMax;
      });
  if (!short_names) return "a device's uuid and model must have at most 253 bytes";
  std::vector<std::string> uuids;
  for (const v1::Device& device : message.devices()) uuids.push_back(device.uuid());
  std::sort(uuids.begin(), uuids.end());
  if (std::adjacent_find(uuids.begin(), uuids.end()) != uuids.end()) return "two devices have the same uuid";
  if (std::find(uuids.begin(), uuids.end(), "") != uuids.end()) return "a device has no uuid";
  return {};
}

std::string problem_of_name(const State& state, const v1::Register& message) {
  const std::string& name = message.node_name();
  if (is_host_name(name) || state.find_node_named(name) != nullptr) return {};
  return std::string("the node's name must be ") + kHostNameRule + "; give the agent another --node";
}

std::string problem_of_cluster(const State& state, const v1::Register& message) {
  const std::string& ours = state.config.cluster;
  if (message.cluster().empty() || ours.empty() || message.cluster() == ours) return {};
  return "this node belongs to the cluster " +
         std::string(utf8_cut(message.cluster(), limits::kLabelBytesMax)) +
         ", but this scheduler belongs to the cluster " + ours +
         "; point the agent at its own scheduler, or, if the data of that scheduler is lost for good, remove "
         "the line 'cluster' from the file 'identity' in the agent's data folder and restart the agent; its "
         "jobs continue";
}

bool is_foreign(const State& state, const v1::AttemptOnNode& known) {
  const Time since = state.config.cluster_since;
  return !known.ended() && since.valid() && known.placed_at_ns() > 0 && known.placed_at_ns() < since.ns;
}

}  // namespace hub

void name_cluster(const State& state, Time wall, std::string drawn, EngineConfig& config) {
  const bool begins = state.last.sequence < kFirstSequence;
  config.cluster = state.config.cluster.empty() ? std::move(drawn) : state.config.cluster;
  config.cluster_since = state.config.cluster_since;
  if (begins) config.cluster_since = wall;
}

}  // namespace gpusched
