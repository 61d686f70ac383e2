#include "model/index/free_index.h"

#include "base/check.h"

namespace gpusched {

static_assert(limits::kDevicesPerNodeMax < UINT8_MAX);

void FreeIndex::put(uint32_t node, uint32_t device_class, uint32_t free) {
  CHECK(device_class <= kNoDevices);
  CHECK(free <= limits::kDevicesPerNodeMax);
  if (device_class >= classes_.size()) classes_.resize(device_class + 1);
  Class& index = classes_[device_class];
  if (node >= index.free_of_node.size()) index.free_of_node.resize(node + 1, kAbsent);
  const uint8_t before = index.free_of_node[node];
  if (before == free) return;
  if (before != kAbsent) {
    index.buckets[before].clear(node);
    --index.counts[before];
  }
  if (free >= index.buckets.size()) {
    index.buckets.resize(free + 1);
    index.counts.resize(free + 1, 0);
  }
  index.buckets[free].set(node);
  ++index.counts[free];
  index.free_of_node[node] = static_cast<uint8_t>(free);
}

void FreeIndex::remove(uint32_t node, uint32_t device_class) {
  if (device_class >= classes_.size()) return;
  Class& index = classes_[device_class];
  if (node >= index.free_of_node.size() || index.free_of_node[node] == kAbsent) return;
  index.buckets[index.free_of_node[node]].clear(node);
  --index.counts[index.free_of_node[node]];
  index.free_of_node[node] = kAbsent;
}

uint32_t FreeIndex::free_max(uint32_t device_class) const {
  if (device_class >= classes_.size()) return 0;
  const std::vector<uint32_t>& counts = classes_[device_class].counts;
  uint32_t free = static_cast<uint32_t>(counts.size());
  while (free > 1 && counts[free - 1] == 0) --free;
  return free == 0 ? 0 : free - 1;
}

const Bitmap& FreeIndex::bucket(uint32_t device_class, uint32_t free) const {
  if (device_class >= classes_.size() || free >= classes_[device_class].buckets.size()) return empty_;
  return classes_[device_class].buckets[free];
}

}  // namespace gpusched
