#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// The jobs that are wanted. Empty fields do not matter.
struct JobQuery {
  std::vector<std::string> states;  ///< Words that `shown_state` gives, and those of the scheduler.
  std::string tenant;
  std::string user;
  std::string name;  ///< '*' and '?' stand for any text and any character.
  std::vector<std::pair<std::string, std::optional<std::string>>> labels;
  Time since = {};                 ///< Submitted then or later.
  Time ended_since = {};           ///< For jobs that have ended: only those that ended then or later.
  int64_t looked_max = INT64_MAX;  ///< Jobs of a state that are looked at, from the newest.
  int64_t limit = INT64_MAX;       ///< Maximum number, from the newest.
  /// The fields to tell of each job, as the native API's parameter `fields` has them. Empty: everything, as
  /// the jobs door tells it.
  std::string fields;

  /// Whether the scheduler's own count of what matches is the right one.
  bool counts() const;
};

struct FoundJobs {
  std::vector<Json> jobs;  ///< Newest first.
  int64_t total = 0;       ///< All that match; of a query that does not count, those that were found.
  bool complete = true;    ///< There are no more than these.
};

/// Asks page by page until enough was found.
Reply find_jobs(Session& session, const JobQuery& query, FoundJobs& found);

/// Every state that people see, and the groups "active" (what has not ended) and "finished".
const std::vector<std::string>& state_words();
/// Jobs that have not ended, and those that have: in the scheduler's words.
const std::vector<std::string>& active_states();
const std::vector<std::string>& finished_states();

/// "running,held", "active", "finished"; kInvalidArgument for anything else.
Result<std::vector<std::string>> parse_states(const std::string& text);

/// The user whose jobs are wanted: `user`, or with `me` the caller's login name. kInvalidArgument when both
/// are given, or the scheduler cannot know which jobs are the caller's.
Result<std::string> user_filter(const Session& session, const std::string& user, bool me);

/// "K" and "K=V" texts as a query has them.
std::vector<std::pair<std::string, std::optional<std::string>>> label_filters(
    const std::vector<std::string>& labels);

/// "2h" (ago), "2025-01-31", "2025-01-31T09:00:00Z".
Result<Time> parse_since(const std::string& text, Time now);

/// The same as the scheduler reads it: a number of seconds ago, such as "5400s", or an instant.
Result<std::string> since_parameter(const std::string& text, Time now);

/// Whether `text` fits `pattern`, in which '*' stands for any text and '?' for any one byte.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace gpusched::cli
