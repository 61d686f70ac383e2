#include "model/identity/binding.h"

#include "base/check.h"

namespace gpusched {
namespace {

struct RoleRow {
  Role role;
  std::string_view name;
  RoleScope scope;
};
constexpr RoleRow kRoles[] = {
    {Role::kViewer, "viewer", RoleScope::kTenant},
    {Role::kUser, "user", RoleScope::kTenant},
    {Role::kTenantAdmin, "tenant_admin", RoleScope::kTenant},
    {Role::kOperator, "operator", RoleScope::kCluster},
    {Role::kAdmin, "admin", RoleScope::kCluster},
    {Role::kMetrics, "metrics", RoleScope::kCluster},
    {Role::kNode, "node", RoleScope::kNowhere},
    {Role::kAnonymous, "anonymous", RoleScope::kNowhere},
};
static_assert(std::size(kRoles) == kRoleCount);

/// Null for a role that does not exist.
const RoleRow* row_of(Role role) {
  const std::size_t index = index_of(role);
  return index < kRoleCount ? &kRoles[index] : nullptr;
}

}  // namespace

std::string_view to_string(Role role) {
  const RoleRow* row = row_of(role);
  CHECK(row != nullptr);
  CHECK(row->role == role);
  return row->name;
}

std::optional<Role> role_named(std::string_view name) {
  for (const RoleRow& row : kRoles) {
    if (row.name == name) return row.role;
  }
  return std::nullopt;
}

RoleScope scope_of(Role role) {
  const RoleRow* row = row_of(role);
  return row == nullptr ? RoleScope::kNowhere : row->scope;
}

bool is_meaningful(const Binding& binding) {
  switch (scope_of(binding.role)) {
    case RoleScope::kTenant:
      return true;
    case RoleScope::kCluster:
      return !binding.tenant.valid();
    case RoleScope::kNowhere:
      return false;
  }
  UNREACHABLE();
}

}  // namespace gpusched
