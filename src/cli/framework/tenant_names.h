#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// Names of tenants by id, for what people read. Not thread-safe.
class TenantNames {
 public:
  /// Asks for the names when one of `ids` needs it, at most once. Without an answer ids stay ids.
  void learn(Session& session, const std::vector<std::string>& ids);
  /// The name of the tenant, or its id when no name is known.
  std::string of(const std::string& id) const;

 private:
  bool asked_ = false;
  std::map<std::string, std::string> names_;
};

/// The records with a member "tenant_name" beside their "tenant_id", as far as names are known.
std::vector<Json> with_tenant_names(Session& session, const std::vector<Json>& records);

}  // namespace gpusched::cli
