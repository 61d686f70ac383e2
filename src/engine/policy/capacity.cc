#include <bit>

#include "base/limits.h"
#include "engine/policy/policies.h"

namespace gpusched::policy {

Refusal Capacity::check(const Part& part, const NodeView& node) const {
  if (!node.node.offers_features(part)) return Refusal::kFeature;
  if (node.exclusive || node.busy) return Refusal::kExclusive;
  if (part.booking != node.node.booked_by) return Refusal::kReservedForOthers;
  if (std::popcount(node.usable_mask) < part.gpu_count) return Refusal::kGpus;
  if (node.cpu_milli_free < part.cpu_milli) return Refusal::kCpu;
  if (node.memory_mb_free < part.memory_mb) return Refusal::kMemory;
  if (node.attempt_count >= limits::kAttemptsPerNodeMax) return Refusal::kAttempts;
  return Refusal::kNone;
}

}  // namespace gpusched::policy
