#include "engine/planner/slice_index.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched {

void SliceIndex::learn(const std::vector<DeviceClass>& kinds) {
  for (std::size_t i = kinds_.size(); i < kinds.size(); ++i) {
    Kind& kind = kinds_.emplace_back();
    if (const mig::Table* table = kinds[i].table()) kind.chart = std::make_shared<const mig::Chart>(*table);
  }
}

void SliceIndex::put(uint32_t node, uint32_t device_class, std::span<const uint32_t> occupancies) {
  CHECK(device_class < kinds_.size());
  Kind& kind = kinds_[device_class];
  if (node >= kind.of_node.size()) {
    if (occupancies.empty()) return;
    kind.of_node.resize(node + 1);
    kind.nodes.resize(mig::kOccupancies);
    kind.counts.resize(mig::kOccupancies, 0);
  }
  std::vector<uint32_t> then(occupancies.begin(), occupancies.end());
  std::sort(then.begin(), then.end());
  then.erase(std::unique(then.begin(), then.end()), then.end());
  std::vector<uint32_t>& now = kind.of_node[node];
  if (then == now) return;
  for (const uint32_t occupancy : now) {
    kind.nodes[occupancy].clear(node);
    --kind.counts[occupancy];
  }
  for (const uint32_t occupancy : then) {
    kind.nodes[occupancy].set(node);
    ++kind.counts[occupancy];
  }
  now = std::move(then);
}

const Bitmap& SliceIndex::nodes(uint32_t device_class, uint32_t occupancy) const {
  CHECK(device_class < kinds_.size());
  const Kind& kind = kinds_[device_class];
  return kind.nodes.empty() ? empty_ : kind.nodes[occupancy];
}

}  // namespace gpusched
