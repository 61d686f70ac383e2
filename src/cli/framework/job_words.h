#pragma once

#include <string>
#include <vector>

#include "cli/framework/session.h"
#include "grammar/grammar.h"

/// Words that people write for jobs, beside their ids.
namespace gpusched::cli {

/// The elements of "0-20:5,30" in their order; a "%50" behind it does not count. kInvalidArgument for
/// anything else, and for more than an array may have.
Result<std::vector<int64_t>> parse_indexes(const std::string& text);

/// "job-46[10-20,30]" as "job-46[10]" and so on; any other text alone. kInvalidArgument for what is between
/// the brackets and is no indexes, or more than an array has.
Result<std::vector<std::string>> expand_elements(const std::string& text);

/// The id of the caller's newest job; of an array's element, the array's. kInvalidArgument: the scheduler
/// cannot know which jobs are the caller's, there is none, or it does not answer.
Result<std::string> newest_job(Session& session);

/// Puts ids in the place of `last`, and of ranges of elements where several jobs may be named, in all values
/// that the command was given for jobs.
Result<Unit> resolve_job_words(Session& session, const Grammar& grammar);

}  // namespace gpusched::cli
