#include "access/caller.h"

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

}  // namespace gpusched::access
