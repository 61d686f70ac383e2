#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "engine/policy/policies.h"

namespace gpusched::policy {

// Free devices that would stay behind weigh most; then the share of CPU that would stay idle.
Score BestFit::score(const Part& part, const NodeView& node) const {
  constexpr int64_t kDevicesMax = limits::kDevicesPerNodeMax;
  const int64_t left = std::popcount(node.free_mask) - (node.shared_mask != 0 ? 0 : part.gpu_count);
  CHECK(left >= 0);
  const int64_t cpu_left = node.cpu_milli_free - part.cpu_milli;
  const int64_t cpu_share =
      node.node.cpu_milli == 0 ? 0 : std::clamp<int64_t>(10 * cpu_left / node.node.cpu_milli, 0, 10);
  return Score::of(90 * (kDevicesMax - left) / kDevicesMax + 10 - cpu_share);
}

}  // namespace gpusched::policy
