#include <algorithm>

#include "engine/policy/policies.h"

namespace gpusched::policy {
namespace {

__extension__ using Wide = __int128;

int64_t clamp(Wide value) {
  return static_cast<int64_t>(std::clamp(value, Wide{INT64_MIN}, Wide{INT64_MAX}));
}

/// Amount that the tenant holds, with what this slice placed.
Amount held_by(const LineView& line, const Tenant& tenant) {
  Amount held = tenant.usage;
  for (const auto& [id, planned] : line.planned) {
    if (id == tenant.id) held.add(planned);
  }
  return held;
}

DecayedUse use_now(const LineView& line, const Tenant& tenant) {
  DecayedUse use = tenant.use;
  use.settle(tenant.usage, line.state.config.half_life(), line.now, line.state.config.feature_level >= 6);
  return use;
}

/// Fine enough that the shares of tenants of large weights still differ.
constexpr int64_t kShareSteps = 1'000'000'000;

/// The largest of the tenant's shares of a resource, in billionths of a millisecond of the whole cluster for
/// a weight of 1000.
int64_t dominant(const LineView& line, const Tenant& tenant) {
  const DecayedUse use = use_now(line, tenant);
  const Amount held = held_by(line, tenant);
  int64_t largest = 0;
  const auto look = [&](int64_t used, int64_t held_now, int64_t capacity, int64_t in_units_of = 1) {
    if (capacity <= 0) return;
    const Wide total = Wide{used} + Wide{held_now} * FairShare::kLookAhead.ms() / in_units_of;
    largest =
        std::max(largest, clamp(total * kShareSteps / capacity / std::max<int64_t>(tenant.weight_milli, 1)));
  };
  look(use.gpus, held.gpu_thousandths(), line.capacity.gpus, kMilliPerGpu);
  look(use.gpu_memory_mb, held.gpu_memory_mb, line.capacity.gpu_memory_mb);
  look(use.cpu_milli, held.cpu_milli, line.capacity.cpu_milli);
  look(use.memory_mb, held.memory_mb, line.capacity.memory_mb);
  return largest;
}

}  // namespace

QueueKey Fifo::key(const LineView& line) const {
  return {.ranks = {}, .head = {.key = 0, .job = line.head.id}};
}

QueueKey StrictPriority::key(const LineView& line) const {
  return {.ranks = {-int64_t{line.tenant.priority_tier}}, .head = line.order};
}

QueueKey FairShare::key(const LineView& line) const {
  QueueKey key{.ranks = {}, .head = line.order};
  for (const Tenant* at = &line.tenant; at != nullptr; at = line.state.find_tenant(at->parent)) {
    key.ranks.push_back(dominant(line, *at));
  }
  std::reverse(key.ranks.begin(), key.ranks.end());
  return key;
}

QueueKey CostAware::key(const LineView& line) const {
  constexpr int64_t kScale = 1'000'000;
  constexpr int64_t kMsPerHour = 3'600'000;
  const Amount cost = total_of(line.state.class_of(line.head).parts);
  const Wide used_milli = Wide{use_now(line, line.tenant).gpus} * 1000 / kMsPerHour;
  const int64_t cost_milli = std::max(cost.gpu_thousandths(), kMilliPerGpu);
  const Wide spent_milli = used_milli + cost_milli;
  const int64_t waited_ms = std::max<int64_t>((line.now - line.head.submitted_at).ms(), 0);
  const Wide score =
      Wide{line.tenant.weight_milli} * kScale / spent_milli + Wide{waited_ms} * (kScale / 100) / 60'000;
  return {.ranks = {clamp(-score)}, .head = line.order};
}

}  // namespace gpusched::policy
