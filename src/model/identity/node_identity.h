#pragma once

#include <string>

#include "base/blob.h"
#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"

namespace gpusched {

using NodeTicketId = Id<struct NodeTicketTag>;
using NodeIdentityId = Id<struct NodeIdentityTag>;

/// Leave for one machine to become the node of a name, once. People call it a node token.
struct NodeTicket {
  NodeTicketId id;
  std::string node;    ///< The only name that it is for.
  std::string prefix;  ///< The part that is no secret: it finds the ticket.
  Blob hash;           ///< BLAKE2b-256 of the secret. Never shown.
  std::string created_by;
  Time created_at;
  Time expires_at;
  Blob used_by;             ///< SHA-256 of the public key that used it. Empty: it is unused.
  NodeIdentityId identity;  ///< Identity that it made; none: it is unused.

  bool is_used() const { return identity.valid(); }

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "name", self.node);
    visit(3, "prefix", self.prefix);
    visit(4, "hash", self.hash);
    visit(5, "created_by", self.created_by);
    visit(6, "created_at", self.created_at);
    visit(7, "expires_at", self.expires_at);
    visit(8, "used_by", self.used_by);
    visit(9, "identity", self.identity);
  }
};

/// The right of the machine with certain certificates to be the node of a name. A certificate names the
/// identity by its id: one of an identity that was revoked or replaced is nobody's.
struct NodeIdentity {
  NodeIdentityId id;
  std::string node;
  Blob key;                 ///< SHA-256 of the public key in its newest certificate.
  std::string admitted_by;  ///< Caller who made the ticket.
  Time admitted_at;
  Time renewed_at;  ///< None: its first certificate is its newest.
  Time expires_at;  ///< End of its newest certificate.
  Time revoked_at;  ///< None: it is not.
  std::string revoked_by;

  bool is_revoked() const { return revoked_at.valid(); }

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "name", self.node);
    visit(3, "key", self.key);
    visit(4, "admitted_by", self.admitted_by);
    visit(5, "admitted_at", self.admitted_at);
    visit(6, "renewed_at", self.renewed_at);
    visit(7, "expires_at", self.expires_at);
    visit(8, "revoked_at", self.revoked_at);
    visit(9, "revoked_by", self.revoked_by);
  }
};

/// Whether name, prefix, hash and use are of a form that a ticket may have.
bool is_possible(const NodeTicket& ticket);
bool is_possible(const NodeIdentity& identity);

}  // namespace gpusched
