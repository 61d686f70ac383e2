#include "host/nodes/release_fence.h"

#include <string>

#include "base/limits.h"
#include "base/text/plain_words.h"
#include "host/nodes/rules/wire.h"

namespace gpusched::hub {

std::optional<Command> ReleaseFence::command_of(const Connection& connection,
                                                const v1::Released& released) const {
  const std::optional<uint32_t> slot = connection.slot_of(released.index());
  if (!slot) return std::nullopt;
  telemetry_.set_evidence(connection.node, *slot, {});
  return DeviceReleased{.node = connection.node,
                        .device = *slot,
                        .generation = released.generation(),
                        .share_of = from_wire(released.share_of())};
}

bool ReleaseFence::is_held(const DeviceReleased& release) const {
  const Node* node = hooks_.state().find_node(release.node);
  if (node == nullptr || release.device >= node->devices.size()) return false;
  const Device& device = node->devices[release.device];
  if (device.generation != release.generation) return false;
  if (!release.share_of.job.valid()) return device.state == DeviceState::kHeld;
  const Share* share = device.share_of(release.share_of);
  return share != nullptr && !share->draining();
}

void ReleaseFence::on_draining(Connection& connection, const v1::Draining& draining) {
  const std::optional<uint32_t> slot = connection.slot_of(draining.index());
  if (!slot) return;
  std::string evidence = plain_words(draining.evidence(), limits::kLabelBytesMax);
  for (const Connection::Foreign& foreign : connection.foreign) {
    if (((foreign.slots >> *slot) & 1) != 0)
      evidence = "a job of another scheduler runs on it; gpu-cli device release stops that job";
  }
  telemetry_.set_evidence(connection.node, *slot, evidence);
  const State& state = hooks_.state();
  const Node& node = connections_.node_of(connection);
  if (*slot >= node.devices.size()) return;
  const Device& device = node.devices[*slot];
  const AttemptKey share_of = from_wire(draining.share_of());
  const Share* share = device.share_of(share_of);
  const bool drains = share_of.job.valid()
                          ? share != nullptr && share->draining() && device.state == DeviceState::kShared
                          : device.state == DeviceState::kDraining;
  if (!drains || device.generation != draining.generation()) return;
  const Time since = share != nullptr ? share->draining_since : device.draining_since;
  if (hooks_.now() - since < state.config.drain_limit) return;
  // Healthy GPUs are not to suffer for a job's epilog, which has its own time limit.
  const bool looked_at =
      !draining.in_epilog() &&
      (draining.checked_ms() == 0 || milliseconds(draining.checked_ms()) >= state.config.drain_limit);
  if (!looked_at) return;
  connections_.propose_once(connection, {Ask::kBusy, connection.node.value, *slot, share_of.job.value},
                            DeviceStillBusy{.node = connection.node,
                                            .device = *slot,
                                            .generation = draining.generation(),
                                            .evidence = evidence,
                                            .share_of = share_of});
}

void ReleaseFence::ask_all(const Connection& connection) const {
  const Node& node = connections_.node_of(connection);
  v1::SchedulerMessage check;
  for (uint32_t slot = 0; slot < node.devices.size(); ++slot) {
    const Device& device = node.devices[slot];
    for (const Share& share : device.shares) {
      if (share.draining()) add(connection, node, slot, share.held_by, check);
    }
    if (device.state != DeviceState::kDraining && device.state != DeviceState::kQuarantined) continue;
    if (device.shares.empty()) add(connection, node, slot, {}, check);
  }
  if (check.has_check_release()) connection.send(check);
}

void ReleaseFence::ask_late(const Connection& connection) const {
  const Node& node = connections_.node_of(connection);
  const Duration limit = hooks_.state().config.drain_limit;
  v1::SchedulerMessage check;
  for (uint32_t slot = 0; slot < node.devices.size(); ++slot) {
    const Device& device = node.devices[slot];
    const auto late = [&](Time since) { return hooks_.now() - since >= limit; };
    for (const Share& share : device.shares) {
      if (device.state == DeviceState::kShared && share.draining() && late(share.draining_since))
        add(connection, node, slot, share.held_by, check);
    }
    if (device.state == DeviceState::kDraining && late(device.draining_since))
      add(connection, node, slot, {}, check);
  }
  if (check.has_check_release()) connection.send(check);
}

void ReleaseFence::ask(const Connection& connection, uint32_t slot) const {
  const Node* node = hooks_.state().find_node(connection.node);
  if (node == nullptr || slot >= node->devices.size()) return;
  v1::SchedulerMessage check;
  add(connection, *node, slot, {}, check);
  if (check.has_check_release()) connection.send(check);
}

void ReleaseFence::add(const Connection& connection, const Node& node, uint32_t slot,
                       const AttemptKey& share_of, v1::SchedulerMessage& check) {
  const std::optional<uint32_t> index = connection.agent_index(slot);
  if (!index) return;
  const Device& device = node.devices[slot];
  v1::GrantedDevice* asked = check.mutable_check_release()->add_devices();
  asked->set_index(*index);
  asked->set_generation(device.generation);
  asked->set_uuid(device.uuid);
  if (share_of.job.valid()) *asked->mutable_share_of() = to_wire(share_of);
}

}  // namespace gpusched::hub
