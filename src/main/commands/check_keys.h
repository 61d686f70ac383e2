#pragma once

#include <string>
#include <vector>

#include "base/time.h"
#include "ops/doctor.h"

/// The findings of the scheduler's doctor about API keys.
namespace gpusched {

/// A key in use, as `GET /v1/keys` tells of it.
struct KeyFacts {
  std::string id, holder, prefix;
  Time created_at;
  Time expires_at;    ///< None: never.
  Time last_used_at;  ///< None: never, as far as is known.
};

/// Warns of keys that never expire, and of those that nobody has used for 90 days. Nothing where there are no
/// keys.
std::vector<Finding> check_keys(const std::vector<KeyFacts>& keys, Time now);

}  // namespace gpusched
