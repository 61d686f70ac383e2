#include "node/process/default_memory.h"

#include <algorithm>

namespace gpusched {
namespace {

constexpr int64_t kLeastMb = 1'024;
constexpr int64_t kKeptLeastMb = 1'024;
constexpr int64_t kKeptDivisor = 20;    ///< Part of all memory: 5 %.
constexpr int64_t kKeptDivisorMin = 4;  ///< On a small machine not more than a quarter.
constexpr int64_t kMillion = 1'000'000;

/// Millionths of `whole` that `part` is; none of nothing.
int64_t share_of(int64_t part, int64_t whole) {
  if (part <= 0 || whole <= 0) return 0;
  return std::min(part, whole) * kMillion / whole;
}

}  // namespace

int64_t default_memory_mb(const v1::StartAttempt& order, const NodeMemory& node) {
  const int64_t kept =
      std::min(std::max(kKeptLeastMb, node.total_mb / kKeptDivisor), node.total_mb / kKeptDivisorMin);
  const int64_t most = std::min(node.offered_mb, node.total_mb - kept);
  if (most <= 0) return 0;  // Nothing is known of the machine's memory.
  int64_t device_milli = 0;
  for (const v1::GrantedDevice& device : order.devices())
    device_milli += device.share_milli() > 0 ? device.share_milli() : 1'000;
  const int64_t share = std::max(share_of(device_milli, node.device_count * 1'000),
                                 share_of(order.cpu_milli(), node.cpu_milli));
  return std::clamp(most * share / kMillion, std::min(kLeastMb, most), most);
}

}  // namespace gpusched
