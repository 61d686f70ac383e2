#pragma once

#include "base/result.h"
#include "history/store/database.h"

namespace gpusched::history {

/// Number of the newest schema, as `PRAGMA user_version` has it.
int64_t schema_version();
/// Brings a database to the newest schema, version by version, each in a transaction of its own; an empty one
/// gets it whole. kVersion: a newer program has made it.
Result<Unit> migrate(Database& database);

}  // namespace gpusched::history
