#pragma once

#include <string>

#include "base/time.h"
#include "cli/terminal/table.h"
#include "client/json.h"

/// Texts of expected starts, for people.
namespace gpusched::cli {

/// Whether the forecast found no start, whatever ends.
bool has_no_start(const Json& answer);
/// The words for an event of `lifted_by`, such as "a job ends" for JobEnded.
std::string event_words(std::string_view event);
/// "in about 30s (2026-01-31T09:42:10Z), in 1m09s at the latest"; empty: nothing is known.
std::string start_text(const Json& answer, Time now);
/// Adds rows for the events that would bring the start nearer, and for the changes of the request that would
/// start it now. Here as above, `answer` is an explanation or a plan.
void add_outlook(const Json& answer, Record& record);

}  // namespace gpusched::cli
