#include "access/caller.h"

#include <utility>

namespace gpusched::access {

Caller anonymous_caller() { return {}; }

Caller shared_token_caller() {
  return {.kind = CallerKind::kOperator,
          .name = "admin by shared token",
          .bindings = {{.tenant = {}, .role = Role::kAdmin},
                       {.tenant = {}, .role = Role::kOperator},
                       {.tenant = {}, .role = Role::kTenantAdmin}},
          .unix_users = {"*", "root"}};
}

Caller unix_person(std::string name, bool has_anonymous) {
  return {.kind = CallerKind::kPerson,
          .name = name,
          .unix_users = {name},
          .uses_open_tenants = true,
          .owns_anonymous = has_anonymous};
}

Caller unix_admin(std::string name) {
  Caller made = shared_token_caller();
  made.kind = CallerKind::kPerson;
  made.name = std::move(name);
  return made;
}

}  // namespace gpusched::access
