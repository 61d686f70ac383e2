#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// Names of tenants by id, for what people read. Not thread-safe.
class TenantNames {
 public:
  /// Asks for the names when one of `texts` has the id of a tenant, at most once. Without an answer ids stay
  /// ids.
  void learn(Session& session, const std::vector<std::string>& texts);
  /// The name of the tenant, or its id when no name is known; "research (tenant-3)" where others have the
  /// name too.
  std::string of(const std::string& id) const;
  /// The text with names in place of ids.
  std::string in(const std::string& text) const;

 private:
  bool asked_ = false;
  std::map<std::string, std::string> names_;
  std::map<std::string, int> holders_;  ///< How many tenants have a name.
};

/// The records with a member "tenant_name" beside their "tenant_id", and with names in their "message", as
/// far as names are known.
std::vector<Json> with_tenant_names(Session& session, const std::vector<Json>& records);

/// A sentence of the scheduler with names in place of tenants' ids.
std::string with_tenant_names(Session& session, const std::string& sentence);

}  // namespace gpusched::cli
