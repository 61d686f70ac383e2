#include "api/views/open_tenants.h"

namespace gpusched::api {

void OpenTenants::fill(const State& state) {
  for (const auto& [id, tenant] : state.tenants) look_at(state, id);
}

void OpenTenants::observe(const State& state, const Changes& changes) {
  for (const Event& event : changes.events) {
    if (const auto* created = std::get_if<TenantCreated>(&event)) look_at(state, created->tenant->id);
    if (const auto* updated = std::get_if<TenantUpdated>(&event)) look_at(state, updated->change->tenant);
  }
}

bool OpenTenants::contains(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  return tenants_.contains(tenant);
}

void OpenTenants::look_at(const State& state, TenantId id) {
  const Tenant* tenant = state.find_tenant(id);
  const std::lock_guard lock(mutex_);
  if (tenant != nullptr && is_open(*tenant)) {
    tenants_.insert(id);
  } else {
    tenants_.erase(id);
  }
}

}  // namespace gpusched::api
