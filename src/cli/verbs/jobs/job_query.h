#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// Which jobs are wanted. What is empty does not matter.
struct JobQuery {
  std::vector<std::string> states;
  std::string tenant;
  std::string user;
  std::string name;  ///< '*' and '?' stand for any text and any character.
  std::vector<std::pair<std::string, std::optional<std::string>>> labels;
  Time since = {};            ///< Submitted then or later.
  int64_t limit = INT64_MAX;  ///< Maximum number, from the newest.
  /// What to tell of each job, as the native API's parameter `fields` has it. Empty: everything, as the jobs
  /// door tells it.
  std::string fields;

  /// Whether the scheduler's own count of what matches is the right one.
  bool counts() const {
    return user.empty() && name.empty() && labels.empty() && !since.valid() && states.size() < 2;
  }
};

struct FoundJobs {
  std::vector<Json> jobs;  ///< Newest first.
  int64_t total = 0;       ///< All that match; of a query that does not count, those that were found.
  bool complete = true;    ///< There are no more than these.
};

/// Asks page by page until enough was found.
Reply find_jobs(Session& session, const JobQuery& query, FoundJobs& found);

/// "running,failed", "active" (what has not ended), "finished"; kInvalidArgument for anything else.
Result<std::vector<std::string>> parse_states(const std::string& text);

/// "2h" (ago), "2025-01-31", "2025-01-31T09:00:00Z".
Result<Time> parse_since(const std::string& text, Time now);

/// Whether `text` fits `pattern`, in which '*' stands for any text and '?' for any one byte.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace gpusched::cli
