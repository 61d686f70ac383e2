#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/errors.h"
#include "api/http/http_message.h"
#include "api/http/rest_gate.h"
#include "base/time.h"

/// Paths and queries of the REST doors, from untrusted bytes.
namespace gpusched::api {

/// The path's decoded segments, without empty ones at the end; nothing when an escape is broken.
std::optional<std::vector<std::string>> path_segments(std::string_view path);

/// Whether the segments fit a pattern such as "api/v1/jobs/*": "*" and what begins with '{' take any one.
bool path_matches(std::string_view pattern, const std::vector<std::string>& segments);

/// The resource in a path: "job-12" of "v1/jobs/job-12/cancel", "n1-gpu-0" of a device's; empty: nothing in
/// particular.
std::string resource_of(const std::vector<std::string>& segments);

ApiError no_such_job(std::string_view text);

/// "2025-01-31T09:00:00Z", or "10m" for ten minutes ago.
std::optional<Time> parse_since(std::string_view text);

/// Answers a method that a path does not take; `allowed` is the list of those that it takes.
void refuse_method(HttpMethod method, const std::string& allowed, const RestCallPtr& call);

/// The decoded query, with the first thing that is wrong with it.
class RestQuery {
 public:
  explicit RestQuery(std::string_view text);

  const std::optional<ApiError>& problem() const { return problem_; }

  /// Nothing when it is not given, or empty.
  std::optional<std::string> text(std::string_view name) const;
  /// Every one of them that is not empty.
  std::vector<std::string> texts(std::string_view name) const;
  int64_t count(std::string_view name, int64_t fallback, int64_t most);
  bool flag(std::string_view name);
  /// Notes a parameter that is not one of `names`.
  void only(std::span<const std::string_view> names);
  void fail(std::string_view name, std::string message);
  void fail(ApiError problem);

 private:
  std::optional<QueryParameters> parameters_;
  std::optional<ApiError> problem_;
};

}  // namespace gpusched::api
