// Jobs and tenants as callers name them.
#include <algorithm>
#include <vector>

#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/views/state_views.h"
#include "base/check.h"

namespace gpusched::api {

Answer<FoundJob> find_job(const State& state, const access::Caller& caller, access::Action action, JobId id,
                          const std::string& tenant) {
  const std::optional<FoundJob> job = look_up(state, id);
  ApiError missing{ErrorKind::kJobNotFound,
                   "no such job: " + job_name(id) + "; finished jobs are kept for 7 days"};
  const access::Verdict verdict = job ? decide(state, caller, action, **job) : access::Verdict::kHidden;
  if (verdict == access::Verdict::kHidden) {  // For any tenant named, as if it were not there.
    missing.hidden = job.has_value();
    return missing;
  }
  if (!tenant.empty()) {
    const Answer<const Tenant*> wanted = find_tenant(state, caller, tenant);
    if (!wanted && wanted.error().kind == ErrorKind::kTenantAmbiguous) return wanted.error();
    if (!wanted || (*wanted)->id != (*job)->tenant) return missing;
  }
  if (verdict == access::Verdict::kForbidden) return not_allowed(state, caller, action, **job);
  return *job;
}

std::optional<TenantId> parse_tenant_id(std::string_view text) {
  if (text == "default") return kDefaultTenant;
  if (!text.starts_with("tenant-")) return std::nullopt;
  const auto number = parse_count(text.substr(7), INT64_MAX);
  if (!number || *number == 0 || text[7] == '0') return std::nullopt;
  return TenantId{static_cast<uint64_t>(*number)};
}

ApiError ambiguous_tenant(std::string_view name, std::span<const TenantId> ids) {
  constexpr std::size_t kShown = 8;
  std::string listed;
  for (const TenantId id : ids.first(std::min(ids.size(), kShown)))
    listed += (listed.empty() ? "" : ", ") + tenant_name(id);
  if (ids.size() > kShown) listed += " and " + std::to_string(ids.size() - kShown) + " more";
  return {ErrorKind::kTenantAmbiguous,
          std::to_string(ids.size()) + " tenants have the name " + std::string(name.substr(0, 64)) + ": " +
              listed + "; give the id instead",
          "tenant_id"};
}

Answer<const Tenant*> find_tenant(const State& state, const access::Caller& caller, std::string_view tenant) {
  std::vector<TenantId> found;
  bool hidden = false;
  const auto consider = [&](TenantId id) {
    const Tenant* const one = state.find_tenant(id);
    if (one == nullptr || one->deleted) return;
    const bool seen = decide(state, caller, access::Action::kSeeTenant, *one) == access::Verdict::kAllowed;
    if (seen) found.push_back(id);
    hidden |= !seen;
  };
  if (const auto id = parse_tenant_id(tenant)) {
    consider(*id);
  } else {
    std::ranges::for_each(state.tenants_named(tenant), consider);
  }
  if (found.empty()) {
    ApiError missing = no_such_tenant(caller, tenant);
    missing.hidden = hidden;
    return missing;
  }
  if (found.size() > 1) return ambiguous_tenant(tenant, found);
  return state.find_tenant(found.front());
}

Answer<const Tenant*> find_tenant(const State& state, const access::Caller& caller, access::Action action,
                                  std::string_view tenant) {
  const Answer<const Tenant*> found = find_tenant(state, caller, tenant);
  if (!found || decide(state, caller, action, **found) == access::Verdict::kAllowed) return found;
  return not_allowed(caller, action, "do that to the tenant");
}

}  // namespace gpusched::api
