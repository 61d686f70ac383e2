#pragma once

#include <string>

#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/identity/access_key.h"
#include "model/identity/node_identity.h"
#include "model/identity/person.h"

/// Events of keys and nodes' identities; see events.h. Deleting a tenant revokes its keys without further
/// events.
namespace gpusched {

struct KeyCreated {
  Boxed<AccessKey> key;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "key", self.key);
  }
};

struct KeyRevoked {
  KeyId key;
  Time at;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "key", self.key);
    visit(2, "at", self.at);
    visit(3, "by", self.by);
  }
};

struct RoleBound {
  KeyId key;
  TenantId tenant;
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

/// A key that ended long ago.
struct KeyForgotten {
  KeyId key;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "key", self.key);
  }
};

/// In place of an older record of that person. The fate of the person's key has events of its own.
struct PersonRecorded {
  Boxed<Person> person;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "person", self.person);
  }
};

/// Older ones of its name that nobody used are over.
struct NodeTicketCreated {
  Boxed<NodeTicket> ticket;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "ticket", self.ticket);
  }
};

/// A ticket that expired long ago.
struct NodeTicketForgotten {
  NodeTicketId ticket;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "ticket", self.ticket);
  }
};

/// In place of an older identity of the name.
struct NodeAdmitted {
  NodeTicketId ticket;
  Boxed<NodeIdentity> identity;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "ticket", self.ticket);
    visit(2, "identity", self.identity);
  }
};

struct NodeRenewed {
  NodeIdentityId identity;
  Blob key;
  Time at;
  Time expires_at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "identity", self.identity);
    visit(2, "key", self.key);
    visit(3, "at", self.at);
    visit(4, "expires_at", self.expires_at);
  }
};

struct NodeRevoked {
  std::string node;
  Time at;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.node);
    visit(2, "at", self.at);
    visit(3, "by", self.by);
  }
};

}  // namespace gpusched
