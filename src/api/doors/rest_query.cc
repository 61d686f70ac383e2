#include "api/doors/rest_query.h"

#include <algorithm>
#include <chrono>

#include "api/contract/parse.h"
#include "api/doors/nearest_name.h"
#include "api/doors/rfc3339.h"

namespace gpusched::api {

std::optional<std::vector<std::string>> path_segments(std::string_view path) {
  std::vector<std::string> segments;
  while (!path.empty()) {
    path.remove_prefix(1);  // The slash.
    const std::size_t end = std::min(path.find('/'), path.size());
    auto segment = percent_decoded(path.substr(0, end), false);
    if (!segment) return std::nullopt;
    segments.push_back(std::move(*segment));
    path.remove_prefix(end);
    if (segments.size() > 8) break;
  }
  while (!segments.empty() && segments.back().empty()) segments.pop_back();  // "/jobs/" is "/jobs".
  return segments;
}

bool path_matches(std::string_view pattern, const std::vector<std::string>& segments) {
  std::size_t at = 0;
  while (!pattern.empty()) {
    const std::size_t end = std::min(pattern.find('/'), pattern.size());
    if (at == segments.size()) return false;
    const std::string_view wanted = pattern.substr(0, end);
    if (wanted != "*" && !wanted.starts_with('{') && wanted != segments[at]) return false;
    ++at;
    pattern.remove_prefix(std::min(end + 1, pattern.size()));
  }
  return at == segments.size();
}

std::string resource_of(const std::vector<std::string>& segments) {
  for (std::size_t i = 0; i + 1 < segments.size(); ++i) {
    const std::string& kind = segments[i];
    if (kind != "jobs" && kind != "tenants" && kind != "nodes" && kind != "reservations" && kind != "keys" &&
        kind != "services")
      continue;
    const bool of_device =
        i + 3 < segments.size() && (segments[i + 2] == "gpus" || segments[i + 2] == "devices");
    return segments[i + 1] + (of_device ? "-gpu-" + segments[i + 3] : "");
  }
  return {};
}

ApiError no_such_job(std::string_view text) {
  return {ErrorKind::kJobNotFound,
          "no such job: " + std::string(text.substr(0, 64)) + "; ids look like job-12"};
}

std::optional<Time> parse_since(std::string_view text) {
  if (const auto time = parse_rfc3339(text)) return time;
  const auto ago = parse_duration(text);
  if (!ago) return std::nullopt;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Time{std::max<int64_t>(1, std::chrono::nanoseconds(now).count() - ago->ns)};
}

void refuse_method(HttpMethod method, const std::string& allowed, const RestCallPtr& call) {
  HttpResponse response;
  response.headers.emplace_back("Allow", allowed + ", OPTIONS");
  if (method == HttpMethod::kOptions) {
    response.status = 204;
  } else {
    const ApiError error{ErrorKind::kMethodNotAllowed,
                         "this path does not support this method; it supports " + allowed};
    ErrorAnswer answer = call->written(error);
    response.status = answer.status;
    response.body = std::move(answer.body);
  }
  call->send(std::move(response));
}

RestQuery::RestQuery(std::string_view text) : parameters_(parse_query(text)) {
  if (parameters_) return;
  problem_ = ApiError{ErrorKind::kInvalidArgument,
                      "the query has an invalid percent escape or too many parameters; correct it"};
}

std::optional<std::string> RestQuery::text(std::string_view name) const {
  if (!parameters_) return std::nullopt;
  for (const auto& [key, value] : *parameters_) {
    if (key == name && !value.empty()) return value;
  }
  return std::nullopt;
}

std::vector<std::string> RestQuery::texts(std::string_view name) const {
  std::vector<std::string> out;
  if (!parameters_) return out;
  for (const auto& [key, value] : *parameters_) {
    if (key == name && !value.empty()) out.push_back(value);
  }
  return out;
}

int64_t RestQuery::count(std::string_view name, int64_t fallback, int64_t most) {
  const auto value = text(name);
  if (!value) return fallback;
  const auto number = parse_count(*value, most);
  if (!number) fail(name, "must be a whole number from 0 to " + std::to_string(most));
  return number.value_or(fallback);
}

bool RestQuery::flag(std::string_view name) {
  const auto value = text(name);
  if (!value || *value == "false" || *value == "0") return false;
  if (*value != "true" && *value != "1") fail(name, "must be true or false");
  return true;
}

void RestQuery::only(std::span<const std::string_view> names) {
  if (!parameters_) return;
  for (const auto& [key, value] : *parameters_) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    const std::vector<std::string> known(names.begin(), names.end());
    const std::string nearest = nearest_name(key, known);
    std::string message = "is not a parameter of this call; ";
    if (!nearest.empty()) {
      message += "did you mean " + nearest + "?";
    } else if (known.empty()) {
      message += "it takes none";
    } else {
      message += "it takes ";
      for (const std::string& name : known) message.append(&name == &known.front() ? "" : ", ").append(name);
    }
    fail(key.substr(0, 64), std::move(message));
    return;
  }
}

void RestQuery::fail(ApiError problem) {
  if (!problem_) problem_ = std::move(problem);
}

void RestQuery::fail(std::string_view name, std::string message) {
  if (problem_) return;
  problem_ =
      ApiError{ErrorKind::kInvalidArgument, std::string(name) + " " + std::move(message), std::string(name)};
}

}  // namespace gpusched::api
