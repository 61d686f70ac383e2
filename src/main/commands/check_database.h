#pragma once

#include "history/postgres/options.h"
#include "ops/doctor.h"

namespace gpusched {

/// Whether the PostgreSQL database of the configuration takes a connection within five seconds, and how.
/// Changes nothing in it. A warning at most: scheduling needs no database.
Finding check_database(const history::PostgresServer& server);

}  // namespace gpusched
