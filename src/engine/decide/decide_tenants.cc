#include <algorithm>
#include <span>

#include "base/limits.h"
#include "engine/decide/decide.h"
#include "engine/decide/guarantees.h"

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

/// The sum of what the children, except `except`, are guaranteed.
int64_t guaranteed_below(const State& state, TenantId parent, TenantId except, Resource resource) {
  int64_t sum = 0;
  for (const auto& [id, other] : state.tenants) {
    if (other.parent == parent && id != except && !other.deleted) sum += amount_of(other.guarantee, resource);
  }
  return sum;
}

/// The key under which people take two names for one. Without a key of its own a name is compared without the
/// case of Latin letters.
std::string key_of(std::string name, const std::string& key) {
  if (!key.empty()) return key;
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

/// Tenants that have the name, or one that people take for it. Older states may have several.
std::vector<TenantId> holders_of(const State& state, const std::string& name, const std::string& name_key) {
  const std::span<const TenantId> exact = state.tenants_named(name);
  if (state.config.feature_level < 10) return {exact.begin(), exact.end()};
  const std::string key = key_of(name, state.config.feature_level < 11 ? std::string() : name_key);
  std::vector<TenantId> holders;
  for (const auto& [id, tenant] : state.tenants) {
    if (!tenant.deleted && key_of(tenant.name, tenant.name_key) == key) holders.push_back(id);
  }
  return holders;
}

/// A name is one tenant's unless the command says that it may repeat. The tenant that anonymous callers may
/// use never takes the name of a tenant that is not theirs: that one would no longer be found by it.
bool is_name_free(const State& state, const CreateTenant& command) {
  const std::vector<TenantId> holders = holders_of(state, command.name, command.name_key);
  if (!command.name_may_repeat) return holders.empty();
  return !command.anonymous ||
         std::ranges::all_of(holders, [&](TenantId holder) { return state.tenant_at(holder).anonymous; });
}

/// Why the tenant, new or changed to this, cannot be guaranteed what it says. More than the cluster has is no
/// reason: nodes come and go.
std::optional<Rejection> guarantee_problem(const State& state, const Tenant& tenant) {
  for (const Resource resource : guarantees::kResources) {
    const int64_t guaranteed = amount_of(tenant.guarantee, resource);
    const int64_t limit = tenant.limits.get(resource);
    if (guaranteed > limit) {
      return Rejection{.code = RejectionCode::kGuaranteeAboveLimit,
                       .tenant = tenant.id,
                       .resource = resource,
                       .requested = guaranteed,
                       .limit = limit};
    }
    const auto above = [&](TenantId whose, int64_t together, int64_t own) {
      return Rejection{.code = RejectionCode::kGuaranteeAboveParent,
                       .tenant = whose,
                       .resource = resource,
                       .requested = together,
                       .limit = own};
    };
    const int64_t below = guaranteed_below(state, tenant.id, TenantId{}, resource);
    if (below > guaranteed) return above(tenant.id, below, guaranteed);
    if (guaranteed == 0 || !tenant.parent.valid()) continue;
    const Tenant& parent = state.tenant_at(tenant.parent);
    const int64_t together = guaranteed + guaranteed_below(state, tenant.parent, tenant.id, resource);
    const int64_t own = amount_of(parent.guarantee, resource);
    if (together > own) return above(parent.id, together, own);
  }
  return std::nullopt;
}

constexpr uint32_t kGuaranteeFields = kTenantMaxGpus | kTenantMaxGpuMemory | kTenantMaxCpu |
                                      kTenantMaxMemory | kTenantMaxJobs | kTenantGuaranteeGpus |
                                      kTenantGuaranteeGpuMemory | kTenantGuaranteeCpu |
                                      kTenantGuaranteeMemory | kTenantGuaranteeJobs;

/// The tenant's limits and guarantee as the command would have them.
Tenant changed_by(const Tenant& tenant, const UpdateTenant& command) {
  Tenant changed;
  changed.id = tenant.id;
  changed.parent = tenant.parent;
  changed.limits = tenant.limits;
  changed.guarantee = tenant.guarantee;
  const auto take = [&](TenantField field, auto& to, const auto& from) {
    if ((command.given & field) != 0) to = from;
  };
  ResourceLimits& limit = changed.limits.resources;
  const ResourceLimits& new_limit = command.limits.resources;
  take(kTenantMaxGpus, limit.gpus, new_limit.gpus);
  take(kTenantMaxGpuMemory, limit.gpu_memory_mb, new_limit.gpu_memory_mb);
  take(kTenantMaxCpu, limit.cpu_milli, new_limit.cpu_milli);
  take(kTenantMaxMemory, limit.memory_mb, new_limit.memory_mb);
  take(kTenantMaxJobs, limit.jobs, new_limit.jobs);
  take(kTenantGuaranteeGpus, changed.guarantee.gpus, command.guarantee.gpus);
  take(kTenantGuaranteeGpuMemory, changed.guarantee.gpu_memory_mb, command.guarantee.gpu_memory_mb);
  take(kTenantGuaranteeCpu, changed.guarantee.cpu_milli, command.guarantee.cpu_milli);
  take(kTenantGuaranteeMemory, changed.guarantee.memory_mb, command.guarantee.memory_mb);
  take(kTenantGuaranteeJobs, changed.guarantee.jobs, command.guarantee.jobs);
  return changed;
}

}  // namespace

Applied create_tenant(const State& state, const CreateTenant& command, Stamp stamp, Events& events) {
  Digest body;
  CreateTenant without_key = command;
  without_key.request_key.clear();
  without_key.name_may_repeat = false;  // Not the client's word: it says the same over every door.
  without_key.name_key.clear();         // It follows from the name.
  without_key.by.clear();
  mix_fields(body, without_key);
  // Keys of tenant creation have no tenant yet: they are remembered under none.
  const RememberedRequest* known =
      command.request_key.empty() ? nullptr
                                  : state.find_request(TenantId{}, OwnerTable::kNobody, command.request_key);
  if (known != nullptr) {
    if (known->body_digest != body.value()) return reject(RejectionCode::kRequestKeyConflict);
    return {.rejection = {}, .first_id = known->first_id, .id_count = 1, .repeated = true};
  }
  const bool full = state.tenants.size() >= limits::kTenantsMax;
  std::vector<TenantId> forgotten;
  if (full && state.config.feature_level >= 6) forgotten = forgettable_tenants(state);
  if (full && forgotten.empty()) return reject(RejectionCode::kTenantLimit);
  if (!is_name_free(state, command)) return reject(RejectionCode::kTenantExists);
  if (command.parent.valid()) {
    const Tenant* parent = state.find_tenant(command.parent);
    if (parent == nullptr || parent->deleted) return reject(RejectionCode::kTenantParentInvalid);
    if (depth_of(state, command.parent) >= limits::kTenantDepthMax)
      return reject(RejectionCode::kTenantParentInvalid);
  }
  if (state.config.feature_level >= 3 && command.weight_milli <= 0)
    return reject(RejectionCode::kWeightInvalid);
  Tenant tenant;
  tenant.id = TenantId{stamp.sequence};
  tenant.parent = command.parent;
  tenant.name = command.name;
  if (state.config.feature_level >= 11) tenant.name_key = command.name_key;
  tenant.email = command.email;
  tenant.organization = command.organization;
  tenant.limits = command.limits;
  tenant.priority_tier = command.priority_tier;
  tenant.weight_milli = command.weight_milli;
  tenant.allow_preemption = command.allow_preemption;
  tenant.can_preempt_others = command.can_preempt_others;
  tenant.anonymous = command.anonymous;
  tenant.guarantee = command.guarantee;
  tenant.gpu_time.length = command.gpu_time_window;
  tenant.gpu_time.max_ms = command.gpu_time_max_ms;
  if (tenant.gpu_time.limited()) tenant.gpu_time.at = stamp.at;
  if (const auto problem = guarantee_problem(state, tenant)) return reject(*problem);
  tenant.created_at = stamp.at;
  tenant.updated_at = stamp.at;
  if (!forgotten.empty()) events.push_back(TenantsForgotten{.tenants = std::move(forgotten)});
  events.push_back(TenantCreated{.tenant = std::move(tenant), .by = command.by});
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
  if ((command.given & kTenantName) != 0 && command.name != tenant->name) {
    const std::vector<TenantId> holders = holders_of(state, command.name, command.name_key);
    // It may change the case of its own name.
    const bool taken = std::ranges::any_of(holders, [&](TenantId id) { return id != tenant->id; });
    if (taken) return reject(RejectionCode::kTenantExists);
  }
  if (state.config.feature_level >= 3 && (command.given & kTenantWeight) != 0 && command.weight_milli <= 0)
    return reject(RejectionCode::kWeightInvalid);
  if ((command.given & kGuaranteeFields) != 0) {
    if (const auto problem = guarantee_problem(state, changed_by(*tenant, command))) return reject(*problem);
  }
  TenantUpdated updated{.change = command, .at = stamp.at};
  const bool new_limit = (command.given & kTenantGpuTimeMax) != 0 &&
                         (command.given & kTenantGpuTimeWindow) == 0 && !tenant->gpu_time.limited();
  if (new_limit) {
    updated.change->given |= kTenantGpuTimeWindow;
    updated.change->gpu_time_window = limits::kGpuTimeWindow;
  }
  events.push_back(std::move(updated));
  return {.rejection = {}, .first_id = command.tenant.value, .id_count = 1};
}

Applied delete_tenant(const State& state, const DeleteTenant& command, Stamp stamp, Events& events) {
  const Tenant* tenant = state.find_tenant(command.tenant);
  if (tenant == nullptr || tenant->deleted) return reject(RejectionCode::kTenantNotFound);
  if (command.tenant == kDefaultTenant) return reject(RejectionCode::kTenantBusy);
  if (tenant->unfinished > 0 || has_children(state, command.tenant))
    return reject(RejectionCode::kTenantBusy);
  if (state.config.feature_level >= 9) {
    for (const auto& [id, booking] : state.bookings) {
      if (booking.tenant == command.tenant)
        events.push_back(BookingEnded{.booking = id, .at = stamp.at, .cancelled = true});
    }
  }
  deactivate_all_of(state, command.tenant, stamp.at, command.by, events);
  events.push_back(TenantDeleted{.tenant = command.tenant, .at = stamp.at, .by = command.by});
  return accept();
}

std::optional<Rejection> over_quota(const State& state, TenantId tenant, const Amount& wanted,
                                    bool with_usage) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (at->limits.resources == ResourceLimits{}) continue;  // Most have none.
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      const int64_t current = amount_of(at->usage, resource);
      const int64_t needed = amount_of(wanted, resource);
      if (needed == 0 || limit == Limits::kUnlimited) continue;
      Amount sum = wanted;
      if (with_usage) sum.add(at->usage);
      if (amount_of(sum, resource) <= limit) continue;
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

void update_tenant(State& state, const TenantUpdated& event) {
  const UpdateTenant& change = *event.change;
  Tenant* tenant = state.find_tenant(change.tenant);
  CHECK(tenant != nullptr);
  const auto given = [&](TenantField field) { return (change.given & field) != 0; };
  if (given(kTenantEmail)) tenant->email = change.email;
  if (given(kTenantOrganization)) tenant->organization = change.organization;
  if (given(kTenantMaxGpus)) tenant->limits.resources.gpus = change.limits.resources.gpus;
  if (given(kTenantMaxGpuMemory))
    tenant->limits.resources.gpu_memory_mb = change.limits.resources.gpu_memory_mb;
  if (given(kTenantMaxCpu)) tenant->limits.resources.cpu_milli = change.limits.resources.cpu_milli;
  if (given(kTenantMaxMemory)) tenant->limits.resources.memory_mb = change.limits.resources.memory_mb;
  if (given(kTenantMaxJobs)) tenant->limits.resources.jobs = change.limits.resources.jobs;
  if (given(kTenantWaiting)) tenant->limits.waiting_max = change.limits.waiting_max;
  if (given(kTenantSoftWaiting)) tenant->limits.soft_waiting_max = change.limits.soft_waiting_max;
  if (given(kTenantPriorityTier)) tenant->priority_tier = change.priority_tier;
  if (given(kTenantWeight)) tenant->weight_milli = change.weight_milli;
  if (given(kTenantAllowPreemption)) tenant->allow_preemption = change.allow_preemption;
  if (given(kTenantCanPreempt)) tenant->can_preempt_others = change.can_preempt_others;
  if (given(kTenantAnonymous)) state.set_anonymous(*tenant, change.anonymous);
  if (given(kTenantGuaranteeGpus)) tenant->guarantee.gpus = change.guarantee.gpus;
  if (given(kTenantGuaranteeGpuMemory)) tenant->guarantee.gpu_memory_mb = change.guarantee.gpu_memory_mb;
  if (given(kTenantGuaranteeCpu)) tenant->guarantee.cpu_milli = change.guarantee.cpu_milli;
  if (given(kTenantGuaranteeMemory)) tenant->guarantee.memory_mb = change.guarantee.memory_mb;
  if (given(kTenantGuaranteeJobs)) tenant->guarantee.jobs = change.guarantee.jobs;
  if (given(kTenantGpuTimeMax)) tenant->gpu_time.max_ms = change.gpu_time_max_ms;
  if (given(kTenantGpuTimeWindow) && change.gpu_time_window != tenant->gpu_time.length) {
    tenant->gpu_time.length = change.gpu_time_window;
    tenant->gpu_time.used_ms = 0;
    tenant->gpu_time.rest = 0;
    tenant->gpu_time.at = tenant->gpu_time.limited() ? event.at : Time{};
  }
  tenant->updated_at = event.at;
  if (given(kTenantName)) {
    state.rename_tenant(*tenant, change.name);
    if (state.config.feature_level >= 11) tenant->name_key = change.name_key;
  }
  if (given(kTenantPriorityTier) && state.config.feature_level >= 9) put_in_line(state, tenant->id);
}

void end_tenant(State& state, const TenantDeleted& event) {
  Tenant& tenant = state.tenant_at(event.tenant);
  state.delete_tenant(tenant);
  tenant.updated_at = event.at;
  state.keys.revoke_all_of(event.tenant, event.at, event.by);
}

}  // namespace gpusched::rules
