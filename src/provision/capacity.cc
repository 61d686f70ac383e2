#include "provision/capacity.h"

#include "base/limits.h"

namespace gpusched::provision {
namespace {

/// Whether a part asks for more than a new machine can promise: devices by name, links of known speed,
/// slices, reservations.
bool is_beyond(const Part& part) {
  const PlaceRequest* wishes = part.wishes();
  return part.is_slice() || part.booking != 0 || part.domain_required ||
         (wishes != nullptr && (wishes->names_devices() || wishes->bandwidth_min > 0));
}

}  // namespace

bool could_hold(const Node& node, const std::vector<DeviceClass>& classes, const Part& part) {
  if (is_beyond(part) || members_when_empty(classes, node, part) == 0) return false;
  if (!part.is_share()) return true;
  for (const Device& device : node.devices) {
    const DeviceClass& kind = classes[device.device_class];
    if (kind.serves(part) && device.has_room_for(kind, part, 0)) return true;
  }
  return false;
}

bool Capacity::has_devices(const Part& part, uint64_t& devices) const {
  devices = 0;
  if (part.is_share()) {
    for (std::size_t i = 0; i < node_.devices.size(); ++i) {
      const DeviceClass& kind = classes_[node_.devices[i].device_class];
      if (!kind.serves(part) || !node_.devices[i].has_room_for(kind, part, 0)) continue;
      devices = uint64_t{1} << i;
      return true;
    }
    return false;
  }
  if (part.gpu_count == 0) return true;
  for (uint32_t kind = 0; kind < classes_.size(); ++kind) {  // One class for all devices of a member.
    if (!classes_[kind].serves(part)) continue;
    int32_t found = 0;
    devices = 0;
    for (std::size_t i = 0; i < node_.devices.size() && found < part.gpu_count; ++i) {
      const Device& device = node_.devices[i];
      if (device.device_class != kind || !device.placeable() || device.promised_to.valid()) continue;
      devices |= uint64_t{1} << i;
      ++found;
    }
    if (found == part.gpu_count) return true;
  }
  return false;
}

bool Capacity::take(const Part& part, uint64_t job) {
  if (!could_hold(node_, classes_, part)) return false;
  const bool empty = node_.attempts.empty() && !used_;
  if (exclusive_ || node_.exclusive_count > 0 || (part.is_exclusive() && !empty)) return false;
  if (part.one_member_per_node && used_ && last_job_ == job) return false;
  if (node_.cpu_milli - node_.cpu_milli_used < part.cpu_milli) return false;
  if (node_.memory_mb - node_.memory_mb_used < part.memory_mb) return false;
  if (static_cast<int64_t>(node_.attempts.size()) + taken_ >= int64_t{limits::kAttemptsPerNodeMax})
    return false;
  uint64_t devices = 0;
  if (!has_devices(part, devices)) return false;
  for (std::size_t i = 0; i < node_.devices.size(); ++i) {
    if (((devices >> i) & 1) == 0) continue;
    Device& device = node_.devices[i];
    if (!part.is_share()) {
      device.state = DeviceState::kHeld;
      continue;
    }
    device.state = DeviceState::kShared;
    device.shares.push_back({.held_by = {.job = JobId{job}},
                             .milli = part.gpu_milli,
                             .memory_mb = classes_[device.device_class].share_mb_of(part, device.memory_mb)});
  }
  node_.cpu_milli_used += part.cpu_milli;
  node_.memory_mb_used += part.memory_mb;
  last_job_ = job;
  ++taken_;
  used_ = true;
  exclusive_ = part.is_exclusive();
  return true;
}

}  // namespace gpusched::provision
