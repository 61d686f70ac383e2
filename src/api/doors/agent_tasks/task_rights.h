#pragma once

#include <array>

#include "access/access.h"
#include "api/contract/caller.h"

namespace gpusched::api {

/// In the tenant whose tasks are the caller's: it is its own, or the default one, which is open. Ids and
/// refusals are looked up at the door and not in the backend, so that the walls between tenants are here as
/// well.
inline bool may_with_tasks(const access::Caller& caller, access::Action action) {
  const std::array<TenantId, 1> path{access::home_tenant(caller)};
  const access::Resource tasks{.tenant_path = path, .is_open = path.front() == kDefaultTenant};
  return decide_access(caller, action, tasks) == access::Verdict::kAllowed;
}

}  // namespace gpusched::api
