#pragma once

#include <string>
#include <vector>

#include "base/blob.h"
#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/identity/access_key.h"
#include "model/identity/node_identity.h"
#include "model/identity/person.h"

/// The commands about keys and nodes' identities; see commands.h. Whether somebody may say so is not the
/// engine's to know: the doors decide that, from facts that do not change while the command is on its way.
/// Keys since feature level 9, nodes' identities since 10, people since 11.
namespace gpusched {

/// Makes a key of a secret that only its holder has: what comes here is the secret's hash.
struct CreateKey {
  TenantId tenant;  ///< Its home; none: the cluster.
  std::string name;
  CallerKind kind{};
  std::string prefix;
  Blob hash;
  std::vector<Binding> bindings;
  std::vector<std::string> unix_users;
  Time expires_at;  ///< None: never.
  std::string by;   ///< Caller who asked, for people, as in the other commands.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "name", self.name);
    visit(3, "kind", self.kind);
    visit(4, "prefix", self.prefix);
    visit(5, "hash", self.hash);
    visit(6, "bindings", self.bindings);
    visit(7, "unix_users", self.unix_users);
    visit(8, "expires_at", self.expires_at);
    visit(9, "by", self.by);
  }
};

/// The key is nobody's any more, for ever.
struct RevokeKey {
  KeyId key;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "key", self.key);
    visit(2, "by", self.by);
  }
};

/// Gives a role to a key's holder, or takes it. Does nothing when that is so already.
struct BindRole {
  KeyId key;
  TenantId tenant;  ///< As in Binding, likewise `role`.
  Role role{};
  bool taken = false;
  std::string by;

  Binding binding() const { return {.tenant = tenant, .role = role}; }
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "key", self.key);
    visit(2, "tenant", self.tenant);
    visit(3, "role", self.role);
    visit(4, "taken", self.taken);
    visit(5, "by", self.by);
  }
};

/// Bits of the fields that RecordPerson gives. They are for ever.
enum PersonField : uint32_t {
  kPersonTenant = 1 << 0,
  kPersonEmail = 1 << 1,
  kPersonRole = 1 << 2,
  kPersonPassword = 1 << 3,
  kPersonActive = 1 << 4,
};
inline constexpr uint32_t kPersonFields = (1 << 5) - 1;

/// Records a person, or changes what is given of one. A person who is active no more, or moves to another
/// tenant, loses the key that was made for it; with another role that key has the other one.
struct RecordPerson {
  PersonId person;  ///< None: a new one, for whom at least the address is given.
  uint32_t given = 0;
  TenantId tenant;
  std::string email;
  Role role = Role::kUser;
  Blob password;  ///< As in Person.
  bool active = true;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "person", self.person);
    visit(2, "given", self.given);
    visit(3, "tenant", self.tenant);
    visit(4, "email", self.email);
    visit(5, "role", self.role);
    visit(6, "password", self.password);
    visit(7, "active", self.active);
    visit(8, "by", self.by);
  }
};

/// Makes a ticket for a node, of a secret that only its holder has. Older ones of the name that nobody used
/// are over.
struct CreateNodeTicket {
  std::string node;
  std::string prefix;
  Blob hash;
  Time expires_at;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.node);
    visit(2, "prefix", self.prefix);
    visit(3, "hash", self.hash);
    visit(4, "expires_at", self.expires_at);
    visit(5, "by", self.by);
  }
};

/// Makes whoever has a key the node of a name: by a ticket, which is used up for that key, or because it has
/// the identity already and gets another certificate. The door has seen the ticket's secret, or a certificate
/// of the identity.
struct AdmitNode {
  NodeTicketId ticket;      ///< None: it renews.
  NodeIdentityId identity;  ///< Identity that is renewed; none: by the ticket.
  std::string node;
  Blob key;         ///< SHA-256 of the public key.
  Time expires_at;  ///< Expiry of the certificate.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "ticket", self.ticket);
    visit(2, "identity", self.identity);
    visit(3, "name", self.node);
    visit(4, "key", self.key);
    visit(5, "expires_at", self.expires_at);
  }
};

/// Nobody is that node any more by any certificate that there is, nor by a ticket that nobody used.
struct RevokeNode {
  std::string node;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.node);
    visit(2, "by", self.by);
  }
};

}  // namespace gpusched
