#pragma once

#include <string>
#include <vector>

#include "base/blob.h"
#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/identity/binding.h"
#include "model/identity/caller_kind.h"

namespace gpusched {

using KeyId = Id<struct KeyTag>;

/// A credential that somebody was given, without its secret. A caller that shows the secret is the caller of
/// that kind and name, and may do what the bindings say.
struct AccessKey {
  KeyId id;
  TenantId tenant;  ///< Its home, which no binding leads out of. None: the cluster.
  std::string name;
  CallerKind kind = CallerKind::kService;  ///< A program or a person.
  std::string prefix;                   ///< The part of the credential that is no secret: it finds the key.
  Blob hash;                            ///< BLAKE2b-256 of the secret. Never shown.
  std::vector<Binding> bindings;        ///< None twice.
  std::vector<std::string> unix_users;  ///< As access::Caller has them.
  std::string created_by;
  Time created_at;
  Time expires_at;  ///< None: never.
  Time revoked_at;  ///< None: it is not.
  std::string revoked_by;

  bool is_alive(Time at) const { return !revoked_at.valid() && (!expires_at.valid() || at < expires_at); }
  /// When it ended, or will end by itself; none: never.
  Time ends_at() const {
    const bool first = revoked_at.valid() && (!expires_at.valid() || revoked_at < expires_at);
    return first ? revoked_at : expires_at;
  }

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "tenant", self.tenant);
    visit(3, "name", self.name);
    visit(4, "kind", self.kind);
    visit(5, "prefix", self.prefix);
    visit(6, "hash", self.hash);
    visit(7, "bindings", self.bindings);
    visit(8, "unix_users", self.unix_users);
    visit(9, "created_by", self.created_by);
    visit(10, "created_at", self.created_at);
    visit(11, "expires_at", self.expires_at);
    visit(12, "revoked_at", self.revoked_at);
    visit(13, "revoked_by", self.revoked_by);
  }
};

/// Whether the part of a key that callers show has the form of one: lower-case letters and digits.
bool is_key_prefix(std::string_view prefix);
/// Whether bindings, users, kind, prefix and hash are of a form that a key may have. Not whether the tenants
/// that it names exist.
bool is_possible(const AccessKey& key);

}  // namespace gpusched
