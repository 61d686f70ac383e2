#include "access/access.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::access {
namespace {

bool owns(const Caller& caller, Subject subject, const Resource& resource) {
  if (subject == Subject::kNode) return !caller.node.empty() && caller.node == resource.node;
  if (resource.owner.kind == CallerKind::kAnonymous)
    return caller.kind == CallerKind::kAnonymous || caller.owns_anonymous;
  if (caller.kind != resource.owner.kind) return false;
  return !caller.name.empty() && caller.name == resource.owner.name;
}

bool reaches(const ActionRow& row, Role role, const Caller& caller, const Resource& resource) {
  switch (row.reach[index_of(role)]) {
    case Reach::kNone:
      return false;
    case Reach::kOwn:
      return owns(caller, row.subject, resource);
    case Reach::kAll:
      return true;
  }
  UNREACHABLE();
}

bool is_inside(std::span<const TenantId> tenant_path, TenantId tenant) {
  return std::ranges::find(tenant_path, tenant) != tenant_path.end();
}

bool is_allowed(const Caller& caller, const ActionRow& row, const Resource& resource) {
  switch (caller.kind) {
    case CallerKind::kAnonymous:
      return (resource.is_open || !has_walls(row.subject)) &&
             reaches(row, Role::kAnonymous, caller, resource);
    case CallerKind::kNode:
      return reaches(row, Role::kNode, caller, resource);
    case CallerKind::kPerson:
    case CallerKind::kService:
    case CallerKind::kOperator:
      if (caller.uses_open_tenants && (resource.is_open || !has_walls(row.subject)) &&
          reaches(row, Role::kUser, caller, resource))
        return true;
      return std::ranges::any_of(caller.bindings, [&](const Binding& binding) {
        const bool is_there = !has_walls(row.subject) || !binding.tenant.valid() ||
                              is_inside(resource.tenant_path, binding.tenant);
        return is_there && is_meaningful(binding) && reaches(row, binding.role, caller, resource);
      });
  }
  UNREACHABLE();
}

bool is_cluster_admin(const Caller& caller) {
  const bool is_bound = caller.kind != CallerKind::kAnonymous && caller.kind != CallerKind::kNode;
  return is_bound && std::ranges::find(caller.bindings, Binding{.tenant = {}, .role = Role::kAdmin}) !=
                         caller.bindings.end();
}

/// By name, or by any spelling of the number.
bool is_root(std::string_view user) {
  return user == "root" || user.find_first_not_of("0+-") == std::string_view::npos;
}

}  // namespace

Verdict decide_access(const Caller& caller, Action action, const Resource& resource) {
  const ActionRow& row = row_of(action);
  if (is_allowed(caller, row, resource)) return Verdict::kAllowed;
  const bool can_hide = has_walls(row.subject) && !resource.tenant_path.empty();
  if (!can_hide || is_allowed(caller, row_of(row.seen_by), resource)) return Verdict::kForbidden;
  return Verdict::kHidden;
}

bool may_run_as(const Caller& caller, std::string_view user) {
  if (user.empty()) return true;
  const auto names = [&](std::string_view name) {
    return std::ranges::find(caller.unix_users, name) != caller.unix_users.end();
  };
  if (is_root(user)) return names("root");
  return names(user) || names("*");
}

bool may_grant(const Caller& giver, Role role, std::span<const TenantId> tenant_path) {
  const Binding binding{.tenant = tenant_path.empty() ? TenantId{} : tenant_path.front(), .role = role};
  if (!is_meaningful(binding)) return false;
  if (!binding.tenant.valid()) return is_cluster_admin(giver);
  return decide_access(giver, Action::kBindRole, {.tenant_path = tenant_path}) == Verdict::kAllowed;
}

bool may_lend_user(const Caller& giver, std::string_view user) {
  if (user.empty()) return false;
  return may_run_as(giver, user) || (is_cluster_admin(giver) && !is_root(user));
}

TenantId home_tenant(const Caller& caller) {
  TenantId home;
  for (const Binding& binding : caller.bindings) {
    if (!binding.tenant.valid() || !is_meaningful(binding)) continue;
    if (home.valid() && home != binding.tenant) return kDefaultTenant;
    home = binding.tenant;
  }
  return home.valid() ? home : kDefaultTenant;
}

}  // namespace gpusched::access
