#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "access/actions.h"
#include "access/caller.h"
#include "base/ids.h"

/// Decides who may do what. Pure functions over a caller, the table of actions, and facts about the resource:
/// they allocate nothing, know no state, and refuse whatever the table does not allow.
namespace gpusched::access {

/// Submitter of a job, or maker of an own key.
struct Owner {
  CallerKind kind = CallerKind::kOperator;
  std::string_view name = {};  ///< Empty: nobody knows, and nobody owns it, unless the kind is anonymous.
};

/// Object of an action. Path, owner and node never change while it exists, so that a decision about them
/// cannot be overtaken by another command.
struct Resource {
  /// The tenant that it belongs to, then that one's parent, and so on up to the top. Empty: the cluster, or a
  /// tenant that is to be created at the top. A view: it must live as long as the call.
  std::span<const TenantId> tenant_path = {};
  Owner owner = {};
  std::string_view node = {};  ///< Name of the node.
  bool is_open = false;        ///< Callers without a credential may use the tenant, or could use the new one.
};

enum class Verdict : uint8_t {
  kAllowed,
  kForbidden,  ///< The caller may know that it exists.
  kHidden,     ///< To be answered as if it did not exist.
};

/// Whether the caller may do that. For an action `as_unix_user` the caller must pass `may_run_as`, too.
Verdict decide_access(const Caller& caller, Action action, const Resource& resource);

/// Whether something of the caller may run as the Unix user of that name or number. Empty, a node's default
/// user, is everybody's. Whether the node lets jobs run as that user is the agent's to say.
bool may_run_as(const Caller& caller, std::string_view user);

/// Whether the caller may give somebody a role in the tenant at the beginning of `tenant_path`; empty: in all
/// tenants and the cluster. Nobody gives what it could not give itself.
bool may_grant(const Caller& giver, Role role, std::span<const TenantId> tenant_path);
/// Whether the caller may let somebody run as the Unix user.
bool may_lend_user(const Caller& giver, std::string_view user);

/// The tenant that a request of the caller means when it names none: the one that its bindings name, if that
/// is a single one, else the default tenant.
TenantId home_tenant(const Caller& caller);

}  // namespace gpusched::access
