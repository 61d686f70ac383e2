#pragma once

#include <mutex>
#include <set>

#include "engine/messages/events.h"
#include "host/readers/observer.h"

namespace gpusched::api {

/// Whether callers without a credential may use the tenant; of a deleted one it says whose its jobs were.
inline bool is_open(const Tenant& tenant) { return tenant.id == kDefaultTenant || tenant.anonymous; }

/// The tenants that callers without a credential may use: the default one, and those that say so.
/// Thread-safe.
class OpenTenants {
 public:
  /// All of a state.
  void fill(const State& state);
  /// What a batch of changes did to them.
  void observe(const State& state, const Changes& changes);

  bool contains(TenantId tenant) const;

 private:
  void look_at(const State& state, TenantId tenant);

  mutable std::mutex mutex_;
  std::set<TenantId> tenants_ = {kDefaultTenant};
};

}  // namespace gpusched::api
