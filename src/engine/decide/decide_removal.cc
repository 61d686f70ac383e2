#include <algorithm>
#include <set>
#include <tuple>

#include "base/limits.h"
#include "engine/decide/decide.h"

// Removes nodes, devices, kinds of device and tenants that are gone for good, so that their slots are reused.
namespace gpusched::rules {
namespace {

bool is_offered(const RegisterNode& command, const Device& device) {
  return std::any_of(command.devices.begin(), command.devices.end(),
                     [&](const DeviceOffer& offer) { return offer.uuid == device.uuid; });
}

/// After a reboot everything that the node held is over, but for attempts whose outcomes the agent still has
/// to tell: their devices.
uint64_t still_held(const State& state, const Node& node, const RegisterNode& command) {
  uint64_t mask = 0;
  for (const KnownAttempt& known : command.attempts) {
    const Attempt* attempt = known.ended ? state.find_attempt(known.job, known.attempt) : nullptr;
    if (attempt == nullptr || known.member >= attempt->members.size()) continue;
    const Member& member = attempt->members[known.member];
    if (member.node == node.id && member.state != MemberState::kEnded) mask |= member.device_mask;
  }
  return mask;
}

/// Slots of devices that the node no longer has and that nothing holds or will hold, the longest gone first.
/// A device that an operator barred keeps its slot.
std::vector<uint32_t> vacant_slots(const State& state, const Node& node, const RegisterNode& command,
                                   bool rebooted) {
  std::vector<uint32_t> vacant;
  const uint64_t held = rebooted ? still_held(state, node, command) : 0;
  for (uint32_t i = 0; i < node.devices.size(); ++i) {
    const Device& device = node.devices[i];
    const bool free = rebooted ? ((held >> i) & 1) == 0 : device.state == DeviceState::kFree;
    if (free && !device.promised_to.valid() && !device.barred && !is_offered(command, device))
      vacant.push_back(i);
  }
  const auto gone_for = [&](uint32_t slot) {
    const Device& device = node.devices[slot];
    return std::tuple(device.condition != DeviceCondition::kMissing, device.missing_since, slot);
  };
  std::sort(vacant.begin(), vacant.end(), [&](uint32_t a, uint32_t b) { return gone_for(a) < gone_for(b); });
  return vacant;
}

/// Also one of which nobody wrote down since when it is missing.
bool is_long_gone(const Device& device, Time at) {
  return device.condition == DeviceCondition::kMissing &&
         device.missing_since + limits::kMissingDeviceKept <= at;
}

/// Attempts with a member on the node: also one that has ended there while its gang goes on elsewhere.
int64_t attempts_with(const State& state, NodeId node) {
  return std::count_if(state.attempts.begin(), state.attempts.end(), [&](const auto& entry) {
    const std::vector<Member>& members = entry.second.members;
    return std::any_of(members.begin(), members.end(), [&](const Member& one) { return one.node == node; });
  });
}

}  // namespace

std::optional<std::vector<uint32_t>> reused_slots(const State& state, const Node* node,
                                                  const RegisterNode& command, bool rebooted, Time at) {
  std::vector<std::string_view> fresh;
  for (const DeviceOffer& offer : command.devices) {
    const bool known =
        node != nullptr && std::any_of(node->devices.begin(), node->devices.end(),
                                       [&](const Device& device) { return device.uuid == offer.uuid; });
    if (!known) fresh.push_back(offer.uuid);
  }
  std::sort(fresh.begin(), fresh.end());
  fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
  const std::size_t slots = node == nullptr ? 0 : node->devices.size();
  const std::size_t room = limits::kDevicesPerNodeMax - slots;
  std::vector<uint32_t> reused;
  if (node != nullptr && !fresh.empty() && state.config.feature_level >= 6) {
    for (const uint32_t slot : vacant_slots(state, *node, command, rebooted)) {
      const std::size_t left = fresh.size() - reused.size();
      if (left == 0 || (left <= room && !is_long_gone(node->devices[slot], at))) break;
      reused.push_back(slot);
    }
  }
  if (fresh.size() - reused.size() > room) return std::nullopt;
  return reused;
}

bool has_device_classes(const State& state, const RegisterNode& command) {
  std::vector<DeviceClass> kinds = state.device_classes;
  if (state.config.feature_level >= 6) {
    kinds.clear();
    const uint64_t used = state.used_device_classes();
    for (std::size_t i = 0; i < state.device_classes.size(); ++i) {
      if (((used >> i) & 1) != 0) kinds.push_back(state.device_classes[i]);
    }
  }
  for (const DeviceOffer& offer : command.devices) {
    const DeviceClass kind{.model = offer.model, .memory_mb = offer.memory_mb, .mig = offer.mig};
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds.size() <= limits::kDeviceClassesMax;
}

std::vector<TenantId> forgettable_tenants(const State& state) {
  std::set<TenantId> needed;
  for (const auto& [id, tenant] : state.tenants) needed.insert(tenant.parent);
  for (const auto& [id, booking] : state.bookings) needed.insert(booking.tenant);
  std::vector<TenantId> forgettable;
  for (const auto& [id, tenant] : state.tenants) {
    if (forgettable.size() >= limits::kForgottenPerCommand) break;
    if (!needed.contains(id) && state.is_forgettable(tenant)) forgettable.push_back(id);
  }
  return forgettable;
}

Applied remove_node(const State& state, const RemoveNode& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (!command.boot_id.empty() && command.boot_id != node->boot_id) return reject(RejectionCode::kStale);
  if (state.config.feature_level < 6) return reject(RejectionCode::kStale);
  if (node->state == NodeState::kReady) return reject(RejectionCode::kNodeConnected);
  const auto held = std::count_if(node->devices.begin(), node->devices.end(), [](const Device& device) {
    return device.state != DeviceState::kFree || device.promised_to.valid();
  });
  const int64_t attempts = attempts_with(state, command.node);
  if (held > 0 || attempts > 0 || node->promised_count > 0) {
    return reject(Rejection{.code = RejectionCode::kNodeBusy, .requested = held, .current = attempts});
  }
  for (const auto& [id, booking] : state.bookings) {
    if (!std::binary_search(booking.nodes.begin(), booking.nodes.end(), node->id)) continue;
    return reject(
        Rejection{.code = RejectionCode::kNodeReserved, .requested = static_cast<int64_t>(id.value)});
  }
  events.push_back(NodeRemoved{.node = node->id, .slot = node->slot, .by = command.by, .at = stamp.at});
  return {.rejection = {}, .first_id = node->id.value, .id_count = 1};
}

}  // namespace gpusched::rules
