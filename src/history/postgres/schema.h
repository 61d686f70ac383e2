#pragma once

#include <cstdint>

#include "base/result.h"
#include "history/postgres/connection.h"

namespace gpusched::history {

/// The version that this program writes.
int64_t postgres_schema_version();

/// Makes the tables, or brings those of an older version to this one; each step is one transaction. kVersion:
/// a newer program's. kAlreadyExists: the tables are somebody else's, who keeps them.
Result<Unit> migrate(Connection& connection);

}  // namespace gpusched::history
