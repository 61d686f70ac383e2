#pragma once

#include <string>

#include "base/time.h"
#include "cli/terminal/table.h"
#include "client/json.h"

/// Texts of expected starts, for people.
namespace gpusched::cli {

/// "in 12m30s (2026-01-31T09:00:00Z) as likely as not; in 40m00s (...) nine times of ten"
std::string estimate_text(const Json& estimate, Time now);
/// Adds rows for the estimate, the evidence and the changes of a request that would start it now.
void add_outlook(const Json& answer, Time now, Record& record);

}  // namespace gpusched::cli
