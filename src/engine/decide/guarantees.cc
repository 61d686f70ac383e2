#include "engine/decide/guarantees.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::guarantees {
namespace {

/// The amount that the tenant holds and keeps.
Amount held_by(const Tenant& tenant, const Change& planned) {
  Amount held = tenant.usage;
  held.add(negated(tenant.going));
  held.add(planned.of(tenant.id));
  return held;
}

bool is_above(const State& state, TenantId ancestor, TenantId tenant) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (at->id == ancestor) return true;
  }
  return false;
}

/// A tenant's loss to the job.
struct Loss {
  const Tenant* tenant = nullptr;
  Amount amount;
};

Loss& loss_of(std::vector<Loss>& losses, const Tenant& tenant) {
  const auto found =
      std::find_if(losses.begin(), losses.end(), [&](const Loss& loss) { return loss.tenant == &tenant; });
  if (found != losses.end()) return *found;
  return losses.emplace_back(Loss{.tenant = &tenant, .amount = {}});
}

bool idles_more(const Tenant& tenant, const Amount& held, const Amount& change) {
  return std::any_of(kResources.begin(), kResources.end(), [&](Resource resource) {
    const int64_t guaranteed = exact_of(tenant.guarantee, resource);
    const int64_t before = std::max<int64_t>(guaranteed - exact_of(held, resource), 0);
    Amount then = held;
    then.add(change);
    const int64_t after = guaranteed - exact_of(then, resource);
    return guaranteed > 0 && after > before;
  });
}

}  // namespace

void Change::add(const State& state, TenantId tenant, const Amount& amount) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    auto found = std::find_if(by_tenant_.begin(), by_tenant_.end(),
                              [&](const auto& entry) { return entry.first == at->id; });
    if (found == by_tenant_.end()) found = by_tenant_.insert(found, {at->id, Amount{}});
    found->second.add(amount);
  }
}

Amount Change::of(TenantId tenant) const {
  for (const auto& [id, amount] : by_tenant_) {
    if (id == tenant) return amount;
  }
  return {};
}

const Tenant* covering(const State& state, TenantId tenant, const Amount& wanted, const Change& planned) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (at->guarantee == Amount{}) continue;
    if (wanted.has_gpus() && at->guarantee.gpus == 0) continue;
    Amount then = held_by(*at, planned);
    then.add(wanted);
    bool named = false;
    const bool fits = std::all_of(kResources.begin(), kResources.end(), [&](Resource resource) {
      const int64_t guaranteed = exact_of(at->guarantee, resource);
      const int64_t needed = exact_of(wanted, resource);
      if (guaranteed == 0 || needed == 0) return true;
      named = true;
      return exact_of(then, resource) <= guaranteed;
    });
    if (named && fits) return at;
  }
  return nullptr;
}

bool preserves_guarantees(const State& state, TenantId by, const Amount& wanted, const Tenant* covering,
                          std::span<const Job* const> victims, const Change& planned) {
  const bool by_gpus = covering != nullptr && wanted.has_gpus();
  std::vector<Loss> losses;
  for (const Job* victim : victims) {
    Amount given = state.held_by(*victim);
    if (by_gpus && given.has_gpus()) given = Amount{.gpus = given.gpus, .gpu_milli = given.gpu_milli};
    for (const Tenant* at = state.find_tenant(victim->tenant); at != nullptr;
         at = state.find_tenant(at->parent)) {
      if (at == covering) return false;
      loss_of(losses, *at).amount.add(given);
    }
  }
  return std::all_of(losses.begin(), losses.end(), [&](const Loss& loss) {
    if (loss.tenant->guarantee == Amount{}) return true;
    Amount change = negated(loss.amount);
    if (is_above(state, loss.tenant->id, by)) {
      if (by_gpus) return true;
      // Where a guarantee without GPUs is asked back, only what it cost in GPUs is looked at so far up.
      change.add(wanted);
      if (covering != nullptr) change = Amount{.gpus = change.gpus, .gpu_milli = change.gpu_milli};
    }
    return !idles_more(*loss.tenant, held_by(*loss.tenant, planned), change);
  });
}

Idle idle_of(const State& state) {
  Idle idle;
  for (const auto& [id, tenant] : state.tenants) {
    if (tenant.guarantee == Amount{}) continue;
    int32_t depth = 0;
    for (const Tenant* at = &tenant; at != nullptr; at = state.find_tenant(at->parent)) --depth;
    const Amount held = held_by(tenant, {});
    for (const Resource resource : kResources) {
      const int64_t short_of = exact_of(tenant.guarantee, resource) - exact_of(held, resource);
      auto& level = resource == Resource::kGpus ? idle.gpus : idle.others;
      level[depth] += std::max<int64_t>(short_of, 0);
    }
  }
  if (!state.config.pools.lends()) return idle;
  int64_t gpus = 0;
  for (const Node& node : state.nodes) gpus += node.in_service() ? std::ssize(node.devices) : 0;
  for (const bool online : {false, true}) {
    const PoolUse& use = online ? state.online : state.batch;
    const int64_t share = state.config.pools.gpus_of(online, gpus) * kMilliPerGpu;
    idle.pools += std::max<int64_t>(share - use.milli + use.stopping_gpu_milli, 0);
  }
  return idle;
}

const Tenant* out_of_gpu_time(const State& state, TenantId tenant, const Amount& wanted, Time now) {
  if (!wanted.has_gpus()) return nullptr;
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (at->gpu_time.limited() && at->gpu_time.used_by(now, at->usage) >= at->gpu_time.max_ms) return at;
  }
  return nullptr;
}

}  // namespace gpusched::guarantees
