#pragma once

#include <string>

#include "base/time.h"
#include "cli/terminal/table.h"
#include "client/json.h"

/// Texts of expected starts, for people.
namespace gpusched::cli {

/// "median: in 12m30s (2026-01-31 09:00:00); 90th percentile: in 40m00s (...)"
std::string estimate_text(const Json& estimate, Time now);
/// Adds rows for the estimate, the evidence and the changes of a request that would start it now.
void add_outlook(const Json& answer, Time now, Record& record);

}  // namespace gpusched::cli
