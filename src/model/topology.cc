#include "model/topology.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {
namespace {

constexpr int64_t kKinds = 16;

const Label* find_label(const std::vector<Label>& labels, const std::string& name) {
  const auto at =
      std::lower_bound(labels.begin(), labels.end(), name,
                       [](const Label& label, const std::string& wanted) { return label.name < wanted; });
  return at == labels.end() || at->name != name ? nullptr : &*at;
}

}  // namespace

std::string_view to_string(LinkKind kind) {
  switch (kind) {
    case LinkKind::kUnknown:
      return "unknown";
    case LinkKind::kSystem:
      return "SYS";
    case LinkKind::kNuma:
      return "NODE";
    case LinkKind::kHostBridge:
      return "PHB";
    case LinkKind::kBridges:
      return "PXB";
    case LinkKind::kSwitch:
      return "PIX";
    case LinkKind::kNvlink:
      return "NVLink";
    case LinkKind::kXgmi:
      return "xGMI";
  }
  UNREACHABLE();
}

bool Link::is_sound(int64_t code) {
  return code >= 0 && code / kKinds <= limits::kLinkGbsMax &&
         code % kKinds <= static_cast<int64_t>(kLinkKindLast);
}

Link Link::of(int64_t code) {
  if (!is_sound(code)) return {};
  return {.kind = static_cast<LinkKind>(code % kKinds), .gbs = code / kKinds};
}

std::size_t pair_index(std::size_t a, std::size_t b, std::size_t devices) {
  const std::size_t low = std::min(a, b);
  const std::size_t high = std::max(a, b);
  CHECK(low < high && high < devices);
  return low * (2 * devices - low - 1) / 2 + (high - low - 1);
}

LinkMap::LinkMap(const Node& node) {
  const std::size_t count = node.devices.size();
  island_.resize(count);
  numa_.resize(count);
  const bool known = count > 1 && node.links.size() == pair_count(count);
  links_.resize(known ? node.links.size() : 0);
  std::transform(node.links.begin(), node.links.begin() + static_cast<std::ptrdiff_t>(links_.size()),
                 links_.begin(), Link::of);
  for (std::size_t i = 0; i < count; ++i) {
    island_[i] = numa_[i] = uint64_t{1} << i;
    const std::optional<int32_t> own = node.devices[i].numa_node;
    knows_numa_ = knows_numa_ || own.has_value();
    for (std::size_t other = 0; own.has_value() && other < count; ++other) {
      if (node.devices[other].numa_node == own) numa_[i] |= uint64_t{1} << other;
    }
  }
  for (std::size_t i = 0; known && i < count; ++i) {
    for (std::size_t other = i + 1; other < count; ++other) {
      if (!between(i, other).joins() || island_[i] == island_[other]) continue;
      const uint64_t joined = island_[i] | island_[other];
      for (std::size_t each = 0; each < count; ++each) {
        if (((joined >> each) & 1) != 0) island_[each] = joined;
      }
    }
  }
}

Link LinkMap::between(std::size_t a, std::size_t b) const {
  if (links_.empty() || a == b) return {};
  return links_[pair_index(a, b, island_.size())];
}

int64_t LinkMap::weakest(uint64_t mask) const {
  if (links_.empty() || std::popcount(mask) < 2) return 0;
  int64_t least = limits::kLinkGbsMax;
  for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto a = static_cast<std::size_t>(std::countr_zero(rest));
    for (uint64_t others = rest & (rest - 1); others != 0; others &= others - 1)
      least = std::min(least, between(a, static_cast<std::size_t>(std::countr_zero(others))).gbs);
  }
  return least;
}

bool has_label(const Node& node, const LabelTerm& term) {
  const Label* found = find_label(node.labels, term.name);
  if (found == nullptr) found = find_label(node.agent_labels, term.name);
  return found != nullptr && (term.any_value || found->value == term.value);
}

bool place_allows(const Node& node, const PlaceRequest& request) {
  const auto has = [&](const LabelTerm& term) { return has_label(node, term); };
  return std::all_of(request.labels.begin(), request.labels.end(), has) &&
         std::none_of(request.without_labels.begin(), request.without_labels.end(), has) &&
         std::none_of(request.avoided.begin(), request.avoided.end(),
                      [&](const AvoidedNode& one) { return one.until.valid() && one.node == node.name; });
}

uint64_t named_devices(const Node& node, const PlaceRequest& request) {
  uint64_t mask = request.device_mask;
  const std::size_t count = node.devices.size();
  if (count < limits::kDevicesPerNodeMax && (mask >> count) != 0) return 0;
  for (const std::string& uuid : request.device_uuids) {
    const auto at = std::find_if(node.devices.begin(), node.devices.end(),
                                 [&](const Device& device) { return device.uuid == uuid; });
    if (at == node.devices.end()) return 0;
    mask |= uint64_t{1} << (at - node.devices.begin());
  }
  return mask;
}

bool satisfies_requested_layout(const Node& node, const Part& part, uint64_t mask) {
  const PlaceRequest* wishes = part.wishes();
  if (wishes == nullptr) return true;
  if (wishes->names_devices() && mask != named_devices(node, *wishes)) return false;
  if (wishes->layout == Layout::kContiguous && mask != 0) {
    const uint64_t run = mask >> std::countr_zero(mask);
    if ((run & (run + 1)) != 0) return false;
  }
  return wishes->bandwidth_min == 0 || LinkMap(node).weakest(mask) >= wishes->bandwidth_min;
}

bool runs_nothing_but(const Node& node, std::size_t members) {
  if (node.attempts.size() + node.promised_count > members) return false;
  return std::none_of(node.devices.begin(), node.devices.end(), [](const Device& device) {
    return device.state == DeviceState::kDraining ||
           std::any_of(device.shares.begin(), device.shares.end(),
                       [](const Share& share) { return share.draining(); });
  });
}

}  // namespace gpusched
