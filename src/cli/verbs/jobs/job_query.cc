#include "cli/verbs/jobs/job_query.h"

#include <algorithm>

#include "base/text/civil_time.h"
#include "cli/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kPageJobs = 1'000;         // Most that the jobs door gives.
constexpr int64_t kNativePageJobs = 10'000;  // Most that the native API gives.

/// The scheduler's state in which jobs are that people see in this one.
std::vector<std::string> scheduler_states(const std::string& word) {
  if (word == "held" || word == "never") return {"pending"};
  if (word == "stopping") return {"scheduled", "running"};
  return {word};
}

bool is_seen_only(const std::string& word) { return word == "held" || word == "never" || word == "stopping"; }

/// Applies the filters that the scheduler does not know.
bool is_seen(const JobQuery& query, const Json& job) {
  if (query.ended_since.valid()) {
    const Time ended = parse_rfc3339(job["completed_at"].text());
    if (ended.valid() && ended < query.ended_since) return false;
  }
  if (std::ranges::none_of(query.states, is_seen_only)) return true;
  const auto wants = [&](const std::string& word) {
    return std::ranges::find(query.states, word) != query.states.end();
  };
  return wants(job["state"].text()) || wants(never_starts(job) ? "never" : shown_state(job));
}

bool matches(const JobQuery& query, const Json& job) {
  if (!query.user.empty() && job_field(job, "user").text() != query.user &&
      job_field(job, "submitter").text() != query.user && job_user(job) != query.user) {
    return false;
  }
  if (!query.name.empty() && !glob_matches(query.name, job_field(job, "name").text())) return false;
  const Json labels = query.labels.empty() ? Json() : job_field(job, "labels");
  return std::ranges::all_of(query.labels, [&](const auto& wanted) {
    const Json value = labels[wanted.first];
    return value.is_string() && (!wanted.second || value.text() == *wanted.second);
  });
}

std::string page_path(const JobQuery& query, const std::string& state, int64_t limit, int64_t offset) {
  std::string path = "/jobs?limit=" + std::to_string(limit) + "&offset=" + std::to_string(offset);
  if (!state.empty()) path += "&state=" + url_encoded(state);
  if (!query.tenant.empty()) path += "&tenant_id=" + url_encoded(query.tenant);
  return path;
}

std::string native_path(const JobQuery& query, const std::string& state, int64_t size,
                        const std::string& token) {
  std::string path = "/v1/jobs?page_size=" + std::to_string(size) + "&fields=" + query.fields;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) path.append("&").append(name).append("=").append(url_encoded(value));
  };
  add("state", state);
  add("tenant_id", query.tenant);
  add("user", query.user);
  add("name", query.name);
  for (const auto& [label, value] : query.labels) add("label", value ? label + "=" + *value : label);
  if (query.since.valid()) add("since", utc_text(query.since));
  add("page_token", token);
  return path;
}

/// The jobs of one state, or of all when it is empty, by the native API: it filters, and tells only what is
/// wanted.
Reply find_native(Session& session, const JobQuery& query, const std::string& state, FoundJobs& found) {
  Progress progress(session.io());
  std::string token;
  int64_t taken = 0;
  int64_t looked = 0;
  for (;;) {
    const int64_t wanted = std::min({kNativePageJobs, query.limit - taken, query.looked_max - looked});
    const Reply page = session.get(native_path(query, state, wanted, token));
    if (!page) return page;
    for (const Json& job : page.json["jobs"].items()) {
      ++looked;
      if (!is_seen(query, job)) continue;
      found.jobs.push_back(job);
      ++taken;
    }
    if (query.counts()) found.total = page.json["total"].integer();
    token = page.json["next_page_token"].text();
    if (token.empty() || taken >= query.limit || looked >= query.looked_max) {
      found.complete = found.complete && token.empty();
      return {};
    }
    progress.show(std::to_string(taken) + (query.counts() ? " of " + std::to_string(found.total) : "") +
                  " jobs");
  }
}

/// The jobs of one state, or of all when it is empty, by the jobs door.
Reply find_of_state(Session& session, const JobQuery& query, const std::string& state, FoundJobs& found) {
  if (!query.fields.empty()) return find_native(session, query, state, found);
  Progress progress(session.io());
  int64_t offset = 0;
  int64_t oldest =
      INT64_MAX;  // Jobs that come in meanwhile shift the pages: what was seen is not taken twice.
  int64_t taken = 0;
  for (;;) {
    const int64_t wanted = query.counts() ? std::min(kPageJobs, query.limit - taken) : kPageJobs;
    const Reply page = session.get(page_path(query, state, wanted, offset));
    if (!page) return page;
    const std::vector<Json> items = page.json["jobs"].items();
    const int64_t total = page.json["total"].integer();
    if (query.counts()) found.total = total;
    offset += static_cast<int64_t>(items.size());
    bool too_old = false;
    for (const Json& job : items) {
      const int64_t number = job_number(job_id_of(job));
      if (number >= oldest) continue;
      oldest = number;
      too_old = query.since.valid() && parse_rfc3339(job["submitted_at"].text()) < query.since;
      if (too_old) break;
      if (!matches(query, job) || !is_seen(query, job)) continue;
      found.jobs.push_back(job);
      if (++taken >= query.limit) break;
    }
    const bool ended = items.empty() || offset >= total || too_old;
    if (ended || taken >= query.limit) {
      found.complete = found.complete && ended;
      return {};
    }
    progress.show(std::to_string(offset) + " of " + std::to_string(total) + " jobs");
  }
}

}  // namespace

bool JobQuery::counts() const {
  return user.empty() && name.empty() && labels.empty() && !since.valid() && !ended_since.valid() &&
         states.size() < 2 && std::ranges::none_of(states, is_seen_only);
}

Reply find_jobs(Session& session, const JobQuery& query, FoundJobs& found) {
  std::vector<std::string> asked;
  for (const std::string& word : query.states) {
    for (std::string& state : scheduler_states(word)) asked.push_back(std::move(state));
  }
  std::ranges::sort(asked);
  const auto twice = std::ranges::unique(asked);
  asked.erase(twice.begin(), twice.end());
  if (asked.empty()) asked.emplace_back();  // All states in one question.
  for (const std::string& state : asked) {
    Reply reply = find_of_state(session, query, state, found);
    if (!reply) return reply;
  }
  if (asked.size() > 1) {
    std::ranges::stable_sort(found.jobs, [](const Json& a, const Json& b) {
      return job_number(job_id_of(a)) > job_number(job_id_of(b));
    });
    // A job that went on from one state to the next while we asked is there twice.
    const auto repeated = std::ranges::unique(found.jobs, {}, job_id_of);
    found.jobs.erase(repeated.begin(), repeated.end());
    if (static_cast<int64_t>(found.jobs.size()) > query.limit) {
      found.jobs.resize(static_cast<size_t>(query.limit));
      found.complete = false;
    }
  }
  if (!query.counts()) found.total = static_cast<int64_t>(found.jobs.size());
  return {};
}

const std::vector<std::string>& active_states() {
  static const std::vector<std::string> kActive = {"pending", "scheduled", "running", "preempted"};
  return kActive;
}

const std::vector<std::string>& finished_states() {
  static const std::vector<std::string> kFinished = {"completed", "failed", "cancelled"};
  return kFinished;
}

const std::vector<std::string>& state_words() {
  static const std::vector<std::string> kWords = {"pending", "held",      "never",     "scheduled",
                                                  "running", "stopping",  "preempted", "completed",
                                                  "failed",  "cancelled", "active",    "finished"};
  return kWords;
}

Result<std::vector<std::string>> parse_states(const std::string& text) {
  std::vector<std::string> states;
  for (const std::string& word : comma_list(text)) {
    if (word == "active") {
      states.insert(states.end(), active_states().begin(), active_states().end());
    } else if (word == "finished") {
      states.insert(states.end(), finished_states().begin(), finished_states().end());
    } else if (std::ranges::find(state_words(), word) != state_words().end()) {
      states.push_back(word);
    } else {
      const std::string near = nearest_of(word, state_words());
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "--state: \"" + word + "\" is not known" +
                              (near.empty() ? "; gpu-cli list --help lists the states"
                                            : "; did you mean " + near + "?")};
    }
  }
  std::ranges::sort(states);
  const auto repeated = std::ranges::unique(states);
  states.erase(repeated.begin(), repeated.end());
  return states;
}

Result<std::string> user_filter(const Session& session, const std::string& user, bool me) {
  if (!me) return user;
  const auto bad = [](const std::string& why) {
    return Error{.code = ErrorCode::kInvalidArgument, .message = "--me: " + why};
  };
  if (!user.empty()) return bad("cannot be combined with --user");
  // Without a credential nobody has a name there.
  if (!session.is_known()) {
    return bad(
        "the scheduler cannot identify callers without a token; give one with --token-file, or select jobs "
        "with --name or --label");
  }
  const std::string login = session.io().login_name ? session.io().login_name() : "";
  return login.empty() ? Result<std::string>(bad("you have no login name; use --user")) : login;
}

std::vector<std::pair<std::string, std::optional<std::string>>> label_filters(
    const std::vector<std::string>& labels) {
  std::vector<std::pair<std::string, std::optional<std::string>>> filters;
  for (const std::string& label : labels) {
    const size_t equals = label.find('=');
    filters.emplace_back(label.substr(0, equals), equals == std::string::npos
                                                      ? std::nullopt
                                                      : std::optional(label.substr(equals + 1)));
  }
  return filters;
}

Result<Time> parse_since(const std::string& text, Time now) {
  if (const Result<int64_t> span = parse_duration_seconds(text)) return now - seconds(*span);
  const Time time = parse_local_time(text, now, TimeOfDay::kLast);
  if (time.valid()) return time;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "--since: \"" + text +
                          "\" is not a time; write 2h, 09:30, yesterday, 2025-01-31 or 2025-01-31T09:00:00Z"};
}

Result<std::string> since_parameter(const std::string& text, Time now) {
  // How long ago is the scheduler's clock's to say, and so is an exact time to the nanosecond.
  if (const Result<int64_t> span = parse_duration_seconds(text)) return std::to_string(*span) + "s";
  if (parse_rfc3339(text).valid()) return text;
  const Result<Time> time = parse_since(text, now);
  if (!time) return time.error();
  return utc_text(*time);
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  size_t at = 0;
  size_t star = std::string_view::npos;
  size_t star_text = 0;
  for (size_t i = 0; i < text.size();) {
    if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[i]) && pattern[at] != '*') {
      ++at;
      ++i;
    } else if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      star_text = i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++star_text;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

}  // namespace gpusched::cli
