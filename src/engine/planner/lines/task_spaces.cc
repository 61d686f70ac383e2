#include "engine/planner/lines/task_spaces.h"

namespace gpusched {
namespace {

__extension__ using Wide = __int128;

}  // namespace

bool TaskSpaces::is_loaded(const Device& device) {
  const Wide memory = device.memory_mb;
  const Wide milli = device.milli;
  const Wide load = 70 * (memory - device.memory_mb_left) * milli + 30 * (milli - device.milli_left) * memory;
  return load >= 85 * memory * milli;
}

void TaskSpaces::put(uint32_t node, std::span<const Device> devices) {
  if (node >= places_.size()) places_.resize(node + 1);
  std::vector<Place>& places = places_[node];
  for (const auto& [kind, space] : places) spaces_[kind].erase(space);
  places.clear();
  for (const Device& device : devices) {
    if (device.milli_left <= 0 || is_loaded(device)) continue;
    if (device.device_class >= spaces_.size()) spaces_.resize(device.device_class + 1);
    const Space space{.memory_mb_left = device.memory_mb_left, .node = node, .device = device.index};
    spaces_[device.device_class].insert(space);
    places.emplace_back(device.device_class, space);
  }
}

const std::set<TaskSpaces::Space>& TaskSpaces::of(uint32_t device_class) const {
  static const std::set<Space> kNone;
  return device_class < spaces_.size() ? spaces_[device_class] : kNone;
}

}  // namespace gpusched
