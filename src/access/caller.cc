#include "access/caller.h"

#include "base/check.h"

namespace gpusched::access {
namespace {

constexpr std::string_view kKinds[] = {"anonymous", "person", "service", "node", "operator"};

}  // namespace

std::string_view to_string(CallerKind kind) {
  const std::size_t index = static_cast<std::size_t>(kind) - 1;
  CHECK(index < std::size(kKinds));
  return kKinds[index];
}

std::optional<CallerKind> caller_kind_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i] == name) return static_cast<CallerKind>(i + 1);
  }
  return std::nullopt;
}

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
