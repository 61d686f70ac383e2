#include "engine/policy/fragmentation/shapes.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::policy {

bool device_fits(const TaskShape& shape, const NodeSpace& node, uint32_t device) {
  return node.milli[device] >= shape.gpu_milli &&
         (shape.device_memory_mb == 0 || node.device_memory_mb[device] >= shape.device_memory_mb);
}

bool fits(const TaskShape& shape, const NodeSpace& node) {
  if (node.cpu_milli < shape.cpu_milli || node.memory_mb < shape.memory_mb) return false;
  if (shape.gpu_count == 0) return true;
  if (((shape.device_classes >> node.device_class) & 1) == 0) return false;
  int32_t found = 0;
  for (uint32_t i = 0; i < node.device_count && found < shape.gpu_count; ++i) {
    if (device_fits(shape, node, i)) ++found;
  }
  return found == shape.gpu_count;
}

uint64_t devices_for(const TaskShape& shape, const NodeSpace& node, uint32_t share_device) {
  if (shape.gpu_count == 0) return 0;
  if (shape.is_share()) {
    CHECK(share_device < node.device_count);
    CHECK(device_fits(shape, node, share_device));
    return uint64_t{1} << share_device;
  }
  uint64_t chosen = 0;
  int32_t found = 0;
  for (uint32_t i = 0; i < node.device_count && found < shape.gpu_count; ++i) {
    if (!device_fits(shape, node, i)) continue;
    chosen |= uint64_t{1} << i;
    ++found;
  }
  CHECK(found == shape.gpu_count);
  return chosen;
}

void take(const TaskShape& shape, uint64_t devices, NodeSpace& node) {
  CHECK(node.cpu_milli >= shape.cpu_milli);
  CHECK(node.memory_mb >= shape.memory_mb);
  node.cpu_milli -= shape.cpu_milli;
  node.memory_mb -= shape.memory_mb;
  for (uint32_t i = 0; i < node.device_count; ++i) {
    if (((devices >> i) & 1) == 0) continue;
    CHECK(device_fits(shape, node, i));
    node.milli[i] = static_cast<uint16_t>(node.milli[i] - shape.gpu_milli);
    node.device_memory_mb[i] = static_cast<uint32_t>(node.device_memory_mb[i] - shape.device_memory_mb);
  }
}

void give_back(const TaskShape& shape, uint64_t devices, NodeSpace& node) {
  node.cpu_milli += shape.cpu_milli;
  node.memory_mb += shape.memory_mb;
  for (uint32_t i = 0; i < node.device_count; ++i) {
    if (((devices >> i) & 1) == 0) continue;
    CHECK(node.milli[i] + shape.gpu_milli <= kWholeMilli);
    node.milli[i] = static_cast<uint16_t>(node.milli[i] + shape.gpu_milli);
    node.device_memory_mb[i] = static_cast<uint32_t>(node.device_memory_mb[i] + shape.device_memory_mb);
  }
}

std::vector<PopularShape> commonest_of(std::vector<PopularShape> counted, uint32_t per_mille) {
  std::erase_if(counted, [](const PopularShape& each) { return each.weight == 0; });
  std::sort(counted.begin(), counted.end(), [](const PopularShape& a, const PopularShape& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.shape < b.shape;
  });
  uint64_t total = 0;
  for (const PopularShape& each : counted) total += each.weight;
  uint64_t covered = 0;
  std::size_t kept = 0;
  while (kept < std::min(counted.size(), kPopularMax) && covered * 1000 < total * per_mille)
    covered += counted[kept++].weight;
  counted.resize(kept);
  return counted;
}

void ShapePopularity::arrived(const TaskShape& shape) {
  ++arrivals_;
  const auto at = std::lower_bound(counted_.begin(), counted_.end(), shape,
                                   [](const Counted& a, const TaskShape& b) { return a.shape < b; });
  if (at != counted_.end() && at->shape == shape) {
    ++at->count;
  } else if (counted_.size() < kShapesMax) {
    counted_.insert(at, {.shape = shape, .count = 1});
  } else {
    return;
  }
  if (++total_ < kWindow) return;
  total_ = 0;
  for (Counted& each : counted_) {
    each.count /= 2;
    total_ += each.count;
  }
  std::erase_if(counted_, [](const Counted& each) { return each.count == 0; });
}

bool ShapePopularity::is_due(uint64_t at_arrivals) const {
  return arrivals_ >= kFirstTable &&
         arrivals_ >= std::min(std::max(2 * at_arrivals, kFirstTable), at_arrivals + kRenewEvery);
}

std::vector<PopularShape> ShapePopularity::commonest(uint32_t per_mille) const {
  std::vector<PopularShape> all;
  all.reserve(counted_.size());
  for (const Counted& each : counted_) all.push_back({.shape = each.shape, .weight = each.count});
  return commonest_of(std::move(all), per_mille);
}

}  // namespace gpusched::policy
