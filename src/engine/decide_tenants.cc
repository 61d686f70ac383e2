#include "base/limits.h"
#include "engine/decide.h"

namespace gpusched::rules {
namespace {

bool has_children(const State& state, TenantId tenant) {
  for (const auto& [id, other] : state.tenants) {
    if (other.parent == tenant && !other.deleted) return true;
  }
  return false;
}

uint32_t depth_of(const State& state, TenantId tenant) {
  uint32_t depth = 0;
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent))
    ++depth;
  return depth;
}

}  // namespace

Applied configure(const State& state, const Configure& command, Events& events) {
  if (command.config == state.config) return accept();
  events.push_back(Configured{.config = command.config});
  return accept();
}

Applied create_tenant(const State& state, const CreateTenant& command, Stamp stamp, Events& events) {
  Digest body;
  CreateTenant without_key = command;
  without_key.request_key.clear();
  mix_fields(body, without_key);
  // Keys of tenant creation have no tenant yet: they are remembered under none.
  const RememberedRequest* known =
      command.request_key.empty() ? nullptr : state.find_request(TenantId{}, command.request_key);
  if (known != nullptr) {
    if (known->body_digest != body.value()) return reject(RejectionCode::kRequestKeyConflict);
    return {.rejection = {}, .first_id = known->first_id, .id_count = 1, .repeated = true};
  }
  if (state.tenants.size() >= limits::kTenantsMax) return reject(RejectionCode::kTenantLimit);
  if (state.find_tenant_named(command.name) != nullptr) return reject(RejectionCode::kTenantExists);
  if (command.parent.valid()) {
    const Tenant* parent = state.find_tenant(command.parent);
    if (parent == nullptr || parent->deleted) return reject(RejectionCode::kTenantParentInvalid);
    if (depth_of(state, command.parent) >= limits::kTenantDepthMax)
      return reject(RejectionCode::kTenantParentInvalid);
  }
  Tenant tenant;
  tenant.id = TenantId{stamp.sequence};
  tenant.parent = command.parent;
  tenant.name = command.name;
  tenant.email = command.email;
  tenant.organization = command.organization;
  tenant.limits = command.limits;
  tenant.priority_tier = command.priority_tier;
  tenant.weight_milli = command.weight_milli;
  tenant.allow_preemption = command.allow_preemption;
  tenant.can_preempt_others = command.can_preempt_others;
  tenant.created_at = stamp.at;
  tenant.updated_at = stamp.at;
  events.push_back(TenantCreated{.tenant = std::move(tenant)});
  if (!command.request_key.empty()) {
    events.push_back(RequestRemembered{.request = RememberedRequest{.tenant = {},
                                                                    .key = command.request_key,
                                                                    .body_digest = body.value(),
                                                                    .first_id = stamp.sequence,
                                                                    .id_count = 1,
                                                                    .at = stamp.at}});
  }
  return {.rejection = {}, .first_id = stamp.sequence, .id_count = 1};
}

Applied update_tenant(const State& state, const UpdateTenant& command, Stamp stamp, Events& events) {
  const Tenant* tenant = state.find_tenant(command.tenant);
  if (tenant == nullptr || tenant->deleted) return reject(RejectionCode::kTenantNotFound);
  if ((command.given & kTenantName) != 0 && command.name != tenant->name &&
      state.find_tenant_named(command.name) != nullptr) {
    return reject(RejectionCode::kTenantExists);
  }
  events.push_back(TenantUpdated{.change = command, .at = stamp.at});
  return {.rejection = {}, .first_id = command.tenant.value, .id_count = 1};
}

Applied delete_tenant(const State& state, const DeleteTenant& command, Stamp stamp, Events& events) {
  const Tenant* tenant = state.find_tenant(command.tenant);
  if (tenant == nullptr || tenant->deleted) return reject(RejectionCode::kTenantNotFound);
  if (command.tenant == kDefaultTenant) return reject(RejectionCode::kTenantBusy);
  if (tenant->unfinished > 0 || has_children(state, command.tenant))
    return reject(RejectionCode::kTenantBusy);
  events.push_back(TenantDeleted{.tenant = command.tenant, .at = stamp.at});
  return accept();
}

std::optional<Rejection> over_quota(const State& state, TenantId tenant, const Amount& wanted,
                                    bool with_usage) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      const int64_t current = amount_of(at->usage, resource);
      const int64_t needed = amount_of(wanted, resource);
      if (needed == 0 || limit == Limits::kUnlimited) continue;
      if (needed + (with_usage ? current : 0) <= limit) continue;
      return Rejection{.code = RejectionCode::kQuotaExceeded,
                       .tenant = at->id,
                       .resource = resource,
                       .requested = needed,
                       .limit = limit,
                       .current = current};
    }
  }
  return std::nullopt;
}

}  // namespace gpusched::rules
