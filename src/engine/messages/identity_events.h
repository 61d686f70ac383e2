#pragma once

#include <string>

#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/identity/access_key.h"

/// What happens to keys; see events.h. The keys of a tenant that is deleted are revoked by that.
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

}  // namespace gpusched
