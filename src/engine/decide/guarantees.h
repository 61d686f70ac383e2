#pragma once

#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/state.h"

/// Effects of a tenant's guarantee: what it gives, and what it may cost others. Pure; used by `decide` and by
/// the planner.
///
/// A tenant's guarantee is lent while it is idle. A job that its tenant's, or an ancestor's, guarantee covers
/// may end others to start: those of tenants that hold more than their own guarantee, and would still hold as
/// much without them.
namespace gpusched::guarantees {

inline constexpr std::array<Resource, 5> kResources = {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu,
                                                       Resource::kMemory, Resource::kJobs};

/// How much more, or less, tenants hold than the state says, ancestors included. A slice's plans.
class Change {
 public:
  /// The tenant and its ancestors hold so much more; a negative amount: less.
  void add(const State& state, TenantId tenant, const Amount& amount);
  Amount of(TenantId tenant) const;
  const std::vector<std::pair<TenantId, Amount>>& all() const { return by_tenant_; }
  void clear() { by_tenant_.clear(); }

 private:
  std::vector<std::pair<TenantId, Amount>> by_tenant_;
};

/// The nearest of the tenant and its ancestors whose guarantee covers `wanted` on top of what is held: of
/// every resource that the guarantee names, and `wanted` has, no more than guaranteed. A job with GPUs is
/// covered only by a guarantee that names GPUs. Null: nobody's does.
const Tenant* covering(const State& state, TenantId tenant, const Amount& wanted, const Change& planned);

/// Whether ending `victims` for a job of the tenant `by` that wants `wanted` leaves every guarantee in peace.
///
/// With `covering`, the tenant whose guarantee is asked back: every victim is outside of that tenant, and
/// those above a victim, up to where both have one ancestor, keep what they are guaranteed. A victim with
/// GPUs is judged by its GPUs when the job wants GPUs, otherwise by all resources; so idle
/// guaranteed cores do not shield a borrowed GPU.
/// Without: no tenant's idle guarantee grows by it, in any resource.
bool preserves_guarantees(const State& state, TenantId by, const Amount& wanted, const Tenant* covering,
                          std::span<const Job* const> victims, const Change& planned);

/// Idle parts of the guarantees, by depth in the tree of tenants: see `policy::Potential`.
struct Idle {
  std::map<int32_t, int64_t> gpus;    ///< By the negative depth: the deepest first.
  std::map<int32_t, int64_t> others;  ///< GPU memory, CPU, memory and jobs added up.
  int64_t pools = 0;                  ///< GPUs of the shares of pools that lend.
  friend auto operator<=>(const Idle&, const Idle&) = default;
};
Idle idle_of(const State& state);

/// The nearest of the tenant and its ancestors that has used up its GPU hours of the window of `now`, for
/// which something that wants GPUs must wait. Null: nobody has.
const Tenant* out_of_gpu_time(const State& state, TenantId tenant, const Amount& wanted, Time now);

}  // namespace gpusched::guarantees
