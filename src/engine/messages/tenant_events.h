#pragma once

#include <string>

#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "engine/messages/tenant_commands.h"
#include "model/cluster.h"

/// Events of tenants; see events.h. `by` is the caller who asked, for people.
namespace gpusched {

struct TenantCreated {
  Boxed<Tenant> tenant;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "by", self.by);
  }
};

struct TenantUpdated {
  Boxed<UpdateTenant> change;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "change", self.change);
    visit(2, "at", self.at);
  }
};

struct TenantDeleted {
  TenantId tenant;
  Time at;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "at", self.at);
    visit(3, "by", self.by);
  }
};

}  // namespace gpusched
