#include <algorithm>
#include <set>

#include "base/limits.h"
#include "engine/decide/decide.h"

namespace gpusched::rules {
namespace {

/// The node's slots with the offer's unknown devices behind them. A device that is named twice is one.
std::size_t slots_with(const Node* node, const RegisterNode& command) {
  std::set<std::string_view> uuids;
  for (const DeviceOffer& offer : command.devices) uuids.insert(offer.uuid);
  std::size_t slots = uuids.size();
  if (node == nullptr) return slots;
  for (const Device& device : node->devices) {
    if (!uuids.contains(device.uuid)) ++slots;
  }
  return slots;
}

/// Everything that the node held is certainly over: its attempts end, its devices are free. Those in `kept`
/// ended before, and the agent's folder has their outcomes, which follow.
void end_everything(const State& state, const Node& node, const std::vector<KnownAttempt>& kept,
                    std::string_view detail, Time at, Events& events) {
  MemberEnds ends(state, at, events);
  for (const AttemptKey& key : node.attempts) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    CHECK(attempt != nullptr);
    const bool follows = std::any_of(kept.begin(), kept.end(), [&](const KnownAttempt& known) {
      return known.ended && known.key() == key && attempt->was_placed(known.placed_at);
    });
    if (follows) continue;
    const Outcome lost{.cause = EndCause::kNodeLost, .detail = std::string(detail)};
    ends.end(*attempt, key.member, lost, true);
  }
  for (uint32_t i = 0; i < node.devices.size(); ++i) {
    const Device& device = node.devices[i];
    if (device.state == DeviceState::kDraining || device.state == DeviceState::kQuarantined) {
      events.push_back(DeviceFreed{.node = node.id, .device = i});
    } else {
      for (const Share& share : device.shares) {
        if (share.draining())
          events.push_back(ShareFreed{.node = node.id, .device = i, .held_by = share.held_by});
      }
    }
  }
}

/// The same boot: what runs by the state but not by the agent is lost.
void end_forgotten(const State& state, const Node& node, const RegisterNode& command, Time at,
                   Events& events) {
  MemberEnds ends(state, at, events);
  for (const AttemptKey& key : node.attempts) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    CHECK(attempt != nullptr);
    const bool known = std::any_of(
        command.attempts.begin(), command.attempts.end(),
        [&](const KnownAttempt& said) { return said.key() == key && attempt->was_placed(said.placed_at); });
    if (known) continue;
    // A member that was only placed is ordered again; its order may never have arrived.
    if (!has_begun(attempt->members[key.member].state)) continue;
    const Outcome lost{.cause = EndCause::kShimLost, .detail = "the agent no longer knows the attempt"};
    ends.end(*attempt, key.member, lost, false);
  }
}

/// Marks as occupied the devices of attempts that the agent runs and the state does not know.
void occupy_unknown(const State& state, const RegisterNode& command, NodeId node, std::size_t slots, Time at,
                    Events& events) {
  const Node* known_node = state.find_node(node);
  uint64_t occupied = 0;
  for (const KnownAttempt& known : command.attempts) {
    const Attempt* attempt = state.find_attempt(known.job, known.attempt);
    if (known.ended || (attempt != nullptr && attempt->was_placed(known.placed_at))) continue;
    occupied |= known.device_mask;
  }
  for (uint32_t i = 0; i < slots; ++i) {
    if (((occupied >> i) & 1) == 0) continue;
    const bool free = known_node == nullptr || i >= known_node->devices.size() ||
                      known_node->devices[i].state == DeviceState::kFree;
    if (free) events.push_back(DeviceOccupied{.node = node, .device = i, .at = at});
  }
}

/// After `end_everything`: what the agent cannot tell to be over yet occupies its devices, but for those of
/// attempts whose outcomes follow, which hold theirs still.
void occupy_unsettled(const State& state, const RegisterNode& command, NodeId node, std::size_t slots,
                      Time at, Events& events) {
  uint64_t occupied = 0;
  uint64_t held = 0;
  for (const KnownAttempt& known : command.attempts) {
    if (!known.ended) occupied |= known.device_mask;
    const Attempt* attempt = state.find_attempt(known.job, known.attempt);
    if (!known.ended || attempt == nullptr || !attempt->was_placed(known.placed_at)) continue;
    if (known.member < attempt->members.size() && attempt->members[known.member].node == node)
      held |= attempt->members[known.member].device_mask;
  }
  for (uint32_t i = 0; i < slots; ++i) {
    if ((((occupied & ~held) >> i) & 1) == 0) continue;
    events.push_back(DeviceOccupied{.node = node, .device = i, .at = at});
  }
}

/// Whether the offer comes from the machine and the data folder that the node was.
bool is_same_machine(const Node& node, const RegisterNode& command) {
  if (node.instance != command.instance) return false;
  if (!node.machine.empty() && !command.machine.empty() && node.machine != command.machine) return false;
  if (node.boot_id == command.boot_id || command.devices.empty()) return true;
  // A copied machine has other devices. All of them at once are not exchanged while something ran on them.
  const auto is_offered = [&](const Device& device) {
    return std::any_of(command.devices.begin(), command.devices.end(),
                       [&](const DeviceOffer& offer) { return offer.uuid == device.uuid; });
  };
  return node.devices.empty() || std::any_of(node.devices.begin(), node.devices.end(), is_offered);
}

/// Whether the node has the device, so that nothing says that it was taken out of its machine.
bool has_device(const Node& node, std::string_view uuid) {
  return std::any_of(node.devices.begin(), node.devices.end(), [&](const Device& device) {
    const bool gone = device.condition == DeviceCondition::kMissing && device.state == DeviceState::kFree;
    return device.uuid == uuid && !gone;
  });
}

/// The part of the offer that belongs to another node that may be alive, in words; empty: none.
std::string overlap_of(const State& state, const Node* node, const RegisterNode& command) {
  std::string found;
  const auto note = [&](const Node& other, const std::string& what) {
    if (&other == node || other.state == NodeState::kDead || !found.empty()) return;
    found = what + " belongs to node '" + other.name + "'";
  };
  state.look_at_claimants(command.instance, [&](const Node& other) {
    if (other.instance == command.instance) note(other, "the agent's data folder");
  });
  for (const DeviceOffer& offer : command.devices) {
    state.look_at_claimants(offer.uuid, [&](const Node& other) {
      if (has_device(other, offer.uuid)) note(other, "the GPU " + offer.uuid);
    });
  }
  return found;
}

/// Since feature level 6: one machine is one node.
std::optional<Rejection> refuse_copies(const State& state, const Node* node, const RegisterNode& command) {
  if (state.config.feature_level < 6) return std::nullopt;
  const bool alive = node != nullptr && node->state == NodeState::kReady;
  if (alive && is_same_machine(*node, command) && node->boot_id != command.boot_id)
    return Rejection{.code = RejectionCode::kNodeStillHeard};
  std::string overlap = overlap_of(state, node, command);
  if (overlap.empty()) return std::nullopt;
  return Rejection{.code = RejectionCode::kNodeOverlap, .nearest = std::move(overlap)};
}

bool holds_something(const Node& node) {
  if (!node.attempts.empty()) return true;
  return std::any_of(node.devices.begin(), node.devices.end(),
                     [](const Device& device) { return device.state != DeviceState::kFree; });
}

}  // namespace

Applied register_node(const State& state, const RegisterNode& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node_named(command.name);
  const bool moved = node != nullptr && (state.config.feature_level < 6 ? node->instance != command.instance
                                                                        : !is_same_machine(*node, command));
  if (moved && node->state != NodeState::kDead) {
    if (node->state == NodeState::kReady || holds_something(*node))
      return reject(RejectionCode::kNodeNameTaken);
  }
  if (const std::optional<Rejection> copied = refuse_copies(state, node, command))
    return {.rejection = copied};
  if (node == nullptr && state.node_count() >= int64_t{limits::kNodesMax})
    return reject(RejectionCode::kNodeLimit);
  const bool rebooted = node != nullptr && (moved || node->boot_id != command.boot_id);
  std::optional<std::vector<uint32_t>> reused = reused_slots(state, node, command, rebooted, stamp.at);
  if (!reused.has_value()) return reject(RejectionCode::kNodeLimit);
  const std::size_t slots = slots_with(node, command) - reused->size();
  if (!has_device_classes(state, command)) return reject(RejectionCode::kNodeLimit);

  if (node != nullptr) {
    if (rebooted) {
      end_everything(state, *node, command.attempts, "the node restarted", stamp.at, events);
    } else {
      end_forgotten(state, *node, command, stamp.at, events);
    }
  }
  const NodeId id = node == nullptr ? NodeId{stamp.sequence} : node->id;
  NodeRegistered registered{
      .node = id, .rebooted = rebooted, .offer = command, .at = stamp.at, .reused = std::move(*reused)};
  registered.offer->attempts.clear();
  events.push_back(std::move(registered));
  if (!rebooted) {
    occupy_unknown(state, command, id, slots, stamp.at, events);
  } else if (state.config.feature_level >= 6) {
    occupy_unsettled(state, command, id, slots, stamp.at, events);
  }
  return {.rejection = {}, .first_id = id.value, .id_count = 1};
}

Applied node_lease_lost(const State& state, const NodeLeaseLost& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (node->state != NodeState::kReady) return accept();
  events.push_back(NodeStateChanged{.node = command.node, .to = NodeState::kUnreachable, .at = stamp.at});
  return accept();
}

Applied node_lease_back(const State& state, const NodeLeaseBack& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  // A node that was declared dead must register: what it runs is unknown.
  if (node->state == NodeState::kDead) return reject(RejectionCode::kStale);
  if (node->state == NodeState::kReady) return accept();
  events.push_back(NodeStateChanged{.node = command.node, .to = NodeState::kReady, .at = stamp.at});
  return accept();
}

Applied confirm_node_dead(const State& state, const ConfirmNodeDead& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (node->state == NodeState::kReady) return reject(RejectionCode::kNodeAlive);
  if (node->state == NodeState::kDead) return accept();
  if (!command.boot_id.empty() && command.boot_id != node->boot_id) return reject(RejectionCode::kStale);
  const std::string who = command.by.empty() ? "an operator" : command.by;
  end_everything(state, *node, {}, who + " confirmed the node dead", stamp.at, events);
  events.push_back(NodeStateChanged{.node = command.node, .to = NodeState::kDead, .at = stamp.at});
  return accept();
}

namespace {

/// Nobody's word makes a device empty: it drains again, and its node is asked how it is.
void lift_quarantine(const State& state, const SetDeviceCondition& command, Time at, Events& events) {
  if (state.config.feature_level >= 2) {
    events.push_back(DeviceOccupied{.node = command.node, .device = command.device, .at = at});
  } else {
    events.push_back(DeviceFreed{.node = command.node, .device = command.device});
  }
}

// An operator's word beside the driver's.
Applied bar_device(const State& state, const SetDeviceCondition& command, const Device& device, Time at,
                   Events& events) {
  const bool bar = command.condition != DeviceCondition::kOk;
  const bool new_words = command.detail != device.barred_detail || command.by != device.barred_by;
  if (bar != device.barred || (bar && new_words)) {
    events.push_back(DeviceBarred{.node = command.node,
                                  .device = command.device,
                                  .barred = bar,
                                  .detail = bar ? command.detail : std::string(),
                                  .by = bar ? command.by : std::string()});
  }
  if (!bar && device.fault != FaultClass::kNone) {
    events.push_back(DeviceFaultChanged{.node = command.node,
                                        .device = command.device,
                                        .fault = FaultClass::kNone,
                                        .code = {},
                                        .detail = {},
                                        .id = device.fault_id,
                                        .by = command.by,
                                        .at = at});
  }
  if (!bar && device.state == DeviceState::kQuarantined) lift_quarantine(state, command, at, events);
  return {.rejection = {}, .first_id = command.node.value, .id_count = 1};
}

}  // namespace

Applied set_device_condition(const State& state, const SetDeviceCondition& command, Stamp stamp,
                             Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (command.device >= node->devices.size()) return reject(RejectionCode::kDeviceNotFound);
  const Device& device = node->devices[command.device];
  if (command.generation && *command.generation != device.generation) return reject(RejectionCode::kStale);
  if (command.lasting) return bar_device(state, command, device, stamp.at, events);
  const bool new_detail = device.state != DeviceState::kQuarantined && device.detail != command.detail;
  if (device.condition != command.condition || new_detail) {
    events.push_back(DeviceConditionChanged{.node = command.node,
                                            .device = command.device,
                                            .condition = command.condition,
                                            .detail = command.detail});
  }
  const bool lift = command.by_operator && command.condition == DeviceCondition::kOk;
  if (lift && device.state == DeviceState::kQuarantined) lift_quarantine(state, command, stamp.at, events);
  return {.rejection = {}, .first_id = command.node.value, .id_count = 1};
}

Applied note_device_heat(const State& state, const NoteDeviceHeat& command, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (command.device >= node->devices.size()) return reject(RejectionCode::kDeviceNotFound);
  const Device& device = node->devices[command.device];
  const std::string detail = command.hot ? command.detail : std::string();
  if (device.hot != command.hot || device.hot_detail != detail) {
    events.push_back(DeviceHeatChanged{
        .node = command.node, .device = command.device, .hot = command.hot, .detail = detail});
  }
  return {.rejection = {}, .first_id = command.node.value, .id_count = 1};
}

Applied set_node_availability(const State& state, const SetNodeAvailability& command, Stamp stamp,
                              Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  const Applied accepted{.rejection = {}, .first_id = node->id.value, .id_count = 1};
  if (node->availability == command.to && node->suspect_detail.empty() &&
      (command.to == Availability::kInService || node->availability_reason == command.reason)) {
    return accepted;
  }
  events.push_back(NodeAvailabilityChanged{
      .node = node->id, .to = command.to, .by = command.by, .reason = command.reason, .at = stamp.at});
  return accepted;
}

Applied node_validated(const State& state, const NodeValidated& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (node->boot_id != command.boot_id) return reject(RejectionCode::kStale);
  // An operator or fault that drained the node must also resume it.
  if (node->availability == Availability::kDraining) return accept();
  const Availability to = command.passed ? Availability::kInService : Availability::kValidating;
  if (node->availability == to && (command.passed || node->availability_reason == command.detail))
    return accept();
  events.push_back(NodeAvailabilityChanged{.node = node->id,
                                           .to = to,
                                           .by = "agent",
                                           .reason = command.passed ? std::string() : command.detail,
                                           .at = stamp.at});
  return accept();
}

Applied label_node(const State& state, const LabelNode& command, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  std::set<std::string_view> names;
  for (const Label& label : node->labels) names.insert(label.name);
  for (const std::string& name : command.remove) names.erase(name);
  for (const Label& label : command.set) names.insert(label.name);
  if (names.size() > limits::kNodeLabelsMax) return reject(RejectionCode::kLabelLimit);
  events.push_back(NodeLabeled{.change = command});
  return {.rejection = {}, .first_id = node->id.value, .id_count = 1};
}

namespace {

/// One of a device in quarantine that was the last of those that drain lifts that.
Applied share_released(const DeviceReleased& command, const Device& device, Events& events) {
  const Share* share = device.share_of(command.share_of);
  if (share == nullptr || !share->draining()) return reject(RejectionCode::kStale);
  const auto draining = std::count_if(device.shares.begin(), device.shares.end(),
                                      [](const Share& other) { return other.draining(); });
  if (device.state == DeviceState::kQuarantined && draining == 1) {
    events.push_back(DeviceFreed{.node = command.node, .device = command.device});
  } else {
    events.push_back(ShareFreed{.node = command.node, .device = command.device, .held_by = command.share_of});
  }
  return accept();
}

}  // namespace

Applied device_released(const State& state, const DeviceReleased& command, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (command.device >= node->devices.size()) return reject(RejectionCode::kDeviceNotFound);
  const Device& device = node->devices[command.device];
  if (device.generation != command.generation) return reject(RejectionCode::kStale);
  if (command.share_of.job.valid()) return share_released(command, device, events);
  if (device.state != DeviceState::kDraining && device.state != DeviceState::kQuarantined) {
    return reject(RejectionCode::kStale);
  }
  events.push_back(DeviceFreed{.node = command.node, .device = command.device});
  return accept();
}

Applied device_still_busy(const State& state, const DeviceStillBusy& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (command.device >= node->devices.size()) return reject(RejectionCode::kDeviceNotFound);
  const Device& device = node->devices[command.device];
  if (device.generation != command.generation) return reject(RejectionCode::kStale);
  Time since = device.draining_since;
  if (command.share_of.job.valid()) {
    const Share* share = device.share_of(command.share_of);
    if (device.state != DeviceState::kShared || share == nullptr || !share->draining()) return accept();
    since = share->draining_since;
  } else if (device.state != DeviceState::kDraining) {
    return accept();
  }
  if (stamp.at - since < state.config.drain_limit) return accept();
  events.push_back(
      DeviceQuarantined{.node = command.node, .device = command.device, .evidence = command.evidence});
  return accept();
}

}  // namespace gpusched::rules
