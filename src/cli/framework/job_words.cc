#include "cli/framework/job_words.h"

#include <charconv>

#include "cli/terminal/output.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kElementsMax = 1'000'000;
constexpr std::string_view kLast = "last";

Error bad(std::string message) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(message)};
}

/// -1: it is none.
int64_t whole_number(std::string_view text) {
  int64_t value = -1;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc{} && stop == text.data() + text.size() ? value : -1;
}

/// Puts the id of the newest job in the place of `last`, also behind the kind of a dependency.
Result<Unit> resolve_last(Session& session, std::string& word) {
  if (word != kLast && !word.ends_with(":" + std::string(kLast))) return Unit{};
  const Result<std::string> newest = newest_job(session);
  if (!newest) return newest.error();
  word.replace(word.size() - kLast.size(), kLast.size(), *newest);
  return Unit{};
}

/// For each kind of target that a value may have.
struct Resolver {
  Session& session;
  bool expands;

  Result<Unit> operator()(std::string* word) const { return resolve_last(session, *word); }
  Result<Unit> operator()(std::vector<std::string>* words) const {
    std::vector<std::string> jobs;
    for (std::string& word : *words) {
      if (Result<Unit> resolved = resolve_last(session, word); !resolved) return resolved;
      Result<std::vector<std::string>> named =
          expands ? expand_elements(word) : Result<std::vector<std::string>>(std::vector{word});
      if (!named) return named.error();
      jobs.insert(jobs.end(), named->begin(), named->end());
    }
    *words = std::move(jobs);
    return Unit{};
  }
  template <typename Other>
  Result<Unit> operator()(Other*) const {
    return Unit{};
  }
};

}  // namespace

Result<std::vector<int64_t>> parse_indexes(const std::string& text) {
  const Error error =
      bad("\"" + text + "\" is not a list of element indexes; write it as 3, 10-20, 0-20:5 or 1,5-7");
  std::vector<int64_t> indexes;
  for (const std::string& part : comma_list(text.substr(0, text.find('%')))) {
    const size_t colon = part.find(':');
    const int64_t step = colon == std::string::npos ? 1 : whole_number(part.substr(colon + 1));
    const std::string range = part.substr(0, colon);
    const size_t dash = range.find('-');
    const int64_t first = whole_number(range.substr(0, dash));
    const int64_t last = dash == std::string::npos ? first : whole_number(range.substr(dash + 1));
    if (first < 0 || last < first || step < 1 || (last - first) / step >= kElementsMax) return error;
    for (int64_t index = first; index <= last; index += step) indexes.push_back(index);
    if (static_cast<int64_t>(indexes.size()) > kElementsMax) return error;
  }
  if (indexes.empty()) return error;
  return indexes;
}

Result<std::vector<std::string>> expand_elements(const std::string& text) {
  const size_t bracket = text.find('[');
  if (bracket == std::string::npos || !text.ends_with(']')) return std::vector<std::string>{text};
  const std::string id = text.substr(0, bracket);
  const Result<std::vector<int64_t>> indexes =
      parse_indexes(text.substr(bracket + 1, text.size() - bracket - 2));
  if (!indexes) return bad(text + ": " + indexes.error().message);
  std::vector<std::string> elements;
  elements.reserve(indexes->size());
  for (const int64_t index : *indexes) elements.push_back(id + "[" + std::to_string(index) + "]");
  return elements;
}

Result<std::string> newest_job(Session& session) {
  const std::string login =
      session.is_known() && session.io().login_name ? session.io().login_name() : std::string();
  if (login.empty()) {
    return bad(
        "last: the scheduler cannot tell which jobs are yours without a token; give the job's id, or a token "
        "with --token-file");
  }
  const Reply reply = session.get("/v1/jobs?page_size=1&fields=job_id,array_id&user=" + url_encoded(login));
  if (!reply) return bad("last: " + reply.trouble->sentence);
  const std::vector<Json> jobs = reply.json["jobs"].items();
  if (jobs.empty())
    return bad("last: " + login + " has no job here; gpu-cli list shows the jobs of all users");
  const std::string array = jobs.front()["array_id"].text();
  return array.empty() ? jobs.front()["job_id"].text() : array;
}

Result<Unit> resolve_job_words(Session& session, const Grammar& grammar) {
  for (const ArgumentSpec& argument : grammar.arguments()) {
    if (argument.complete != Complete::kJob) continue;
    const Result<Unit> resolved = std::visit(Resolver{session, true}, argument.target);
    if (!resolved) return resolved;
  }
  for (const OptionSpec& option : grammar.options()) {
    if (option.complete != Complete::kJob) continue;
    const Result<Unit> resolved = std::visit(Resolver{session, false}, option.target);
    if (!resolved) return resolved;
  }
  return Unit{};
}

}  // namespace gpusched::cli
