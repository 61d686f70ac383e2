#include <algorithm>
#include <bit>

#include "engine/policy/policies.h"

namespace gpusched::policy {

// Ten points for each doubling, so that 16 GB/s over PCIe has 40, and 450 over NVLink 87.
Score StrongLinks::score(const Part& part, const NodeView& node) const {
  if (part.gpu_count < 2 || node.link_gbs <= 0) return Score::of(0);
  const int64_t doublings = std::bit_width(static_cast<uint64_t>(node.link_gbs)) - 1;
  const int64_t base = int64_t{1} << doublings;
  return Score::of(std::min<int64_t>(10 * doublings + 10 * (node.link_gbs - base) / base, Score::kMax));
}

}  // namespace gpusched::policy
