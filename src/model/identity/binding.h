#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ids.h"

namespace gpusched {

/// Role of a caller. The numbers are for ever: bindings are to be journaled.
enum class Role : uint8_t {
  kViewer = 1,   ///< Sees a tenant and its jobs.
  kUser,         ///< Submits jobs, and has its own.
  kTenantAdmin,  ///< Has all jobs of a tenant, and its keys.
  kOperator,     ///< Runs the cluster: nodes, reservations, moves.
  kAdmin,        ///< Has tenants, keys and nodes' admission.
  kMetrics,      ///< Reads metrics.
  kNode,         ///< An agent. Comes with the kind of the caller, and is never bound.
  kAnonymous,    ///< No credential. The same.
};
inline constexpr std::size_t kRoleCount = 8;

/// Position of a role in tables.
constexpr std::size_t index_of(Role role) { return static_cast<std::size_t>(role) - 1; }

std::string_view to_string(Role role);
std::optional<Role> role_named(std::string_view name);

/// Scopes for which a role can be given.
enum class RoleScope : uint8_t {
  kTenant,   ///< A tenant and its children, or all tenants.
  kCluster,  ///< The cluster as a whole; bound to a tenant it means nothing.
  kNowhere,  ///< Not given at all.
};
RoleScope scope_of(Role role);

/// A role that somebody has.
struct Binding {
  TenantId tenant;  ///< Tenant with its children. None: all tenants and the cluster.
  Role role = Role::kViewer;

  friend bool operator==(const Binding&, const Binding&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "role", self.role);
  }
};

/// Whether the binding means anything: its role exists and can be given there.
bool is_meaningful(const Binding& binding);

}  // namespace gpusched
