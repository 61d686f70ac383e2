#include "engine/policy/fragmentation/rules.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace gpusched::policy {
namespace {

/// The best of what `rate_on(devices)` says for the devices that a task may get; of devices with equal holes
/// one is tried.
template <typename RateOn>
PlacementRate best_device(const TaskShape& shape, const NodeSpace& node, RateOn&& rate_on) {
  if (!shape.is_share()) return {.value = rate_on(devices_for(shape, node, 0)), .device = 0};
  PlacementRate best;
  bool found = false;
  std::array<uint64_t, (kWholeMilli + 64) / 64> tried{};
  const auto try_device = [&](uint32_t device) {
    const int32_t value = rate_on(uint64_t{1} << device);
    // The smallest of equally good holes wins, whatever the order of devices.
    const bool better =
        !found || value > best.value || (value == best.value && node.milli[device] < node.milli[best.device]);
    if (better) best = {.value = value, .device = device};
    found = true;
  };
  for (uint32_t i = 0; i < node.device_count; ++i) {
    if (!device_fits(shape, node, i)) continue;
    uint64_t& word = tried[node.milli[i] / 64u];
    const uint64_t bit = uint64_t{1} << (node.milli[i] % 64u);
    if ((word & bit) != 0) continue;
    word |= bit;
    try_device(i);
  }
  CHECK(found);
  return best;
}

}  // namespace

uint32_t tightest_device(const TaskShape& shape, const NodeSpace& node) {
  uint32_t best = node.device_count;
  for (uint32_t i = 0; i < node.device_count; ++i) {
    if (!device_fits(shape, node, i)) continue;
    if (best == node.device_count || node.milli[i] < node.milli[best]) best = i;
  }
  CHECK(best < node.device_count);
  return best;
}

PlacementRate PublishedBestFit::rate(const TaskShape& shape, const NodeSpace& node,
                                     int64_t /*standing*/) const {
  // 50 (cpu / 128000 + gpu / 8000) = (cpu + 16 gpu) / 2560.
  constexpr int64_t kScale = 2560;
  int64_t gpu = -shape.total_milli();
  for (uint32_t i = 0; i < node.device_count; ++i) gpu += node.milli[i];
  const int64_t left = node.cpu_milli - shape.cpu_milli + 16 * gpu;
  const int64_t value = std::max<int64_t>(0, 100 * kScale - left) / kScale;
  return {.value = static_cast<int32_t>(value),
          .device = shape.is_share() ? tightest_device(shape, node) : 0};
}

PlacementRate GpuPacking::rate(const TaskShape& shape, const NodeSpace& node, int64_t /*standing*/) const {
  constexpr int32_t kMax = 100;
  if (shape.gpu_count == 0) return {};
  int32_t whole = 0;
  for (uint32_t i = 0; i < node.device_count; ++i) whole += node.milli[i] == kWholeMilli ? 1 : 0;
  const uint32_t device = shape.is_share() ? tightest_device(shape, node) : 0;
  if (whole == static_cast<int32_t>(node.device_count))
    return {.value = std::max(kMax / 3 - whole, whole), .device = device};
  const bool opens = !shape.is_share() || node.milli[device] == kWholeMilli;
  if (opens) return {.value = std::max(kMax / 2 - shape.gpu_count, kMax / 3), .device = device};
  const int32_t hole = node.milli[device] * kMax / kWholeMilli;
  return {.value = std::max(kMax - hole / 10, kMax / 2), .device = device};
}

PlacementRate FragmentationGradient::rate(const TaskShape& shape, const NodeSpace& node,
                                          int64_t standing) const {
  NodeSpace after = node;
  return best_device(shape, node, [&](uint64_t devices) {
    take(shape, devices, after);
    const int32_t value = published_score(table_.fragmented(after) - standing);
    give_back(shape, devices, after);
    return value;
  });
}

PlacementRate LeastValueLost::rate(const TaskShape& shape, const NodeSpace& node, int64_t standing) const {
  const SpaceValue::After after(value_, shape, node);
  return best_device(shape, node, [&](uint64_t devices) {
    const int64_t lost = standing - after.on(devices);
    CHECK(lost >= 0);
    return static_cast<int32_t>(-std::min<int64_t>(lost / quantum_, std::numeric_limits<int32_t>::max()));
  });
}

}  // namespace gpusched::policy
