#pragma once

#include <optional>
#include <string_view>

#include "api/contract/errors.h"
#include "api/http/http_message.h"

/// Rules that every request keeps, whatever it asks for and whoever sends it. Thread-safe.
namespace gpusched::api {

/// Facts of a request's head about the host that it is for.
struct RequestHost {
  bool version_1_0 = false;
  int host_count = 0;            ///< Number of Host headers.
  std::string_view host = {};    ///< Value of the first.
  std::string_view target = {};  ///< As it came.
  bool is_options = false;       ///< The method is OPTIONS, whose target may be "*".
};

/// A target in the absolute form, "http://host:port/path", in its parts.
struct AbsoluteTarget {
  std::string_view scheme;     ///< As it came: "http" or "https" in letters of any size.
  std::string_view authority;  ///< The host, with a port if it has one.
  std::string_view rest;       ///< Path and query; may be empty, or begin with '?'.
};
/// Nothing: the target has another form or another scheme.
std::optional<AbsoluteTarget> read_absolute(std::string_view target);

/// Why the request names its host in no way that RFC 9112, 3.2, allows: a sentence in static storage. Empty:
/// it names its host once, or is older than HTTP/1.1, and its target is a path or a URL of that host.
std::string_view violation_of(const RequestHost& request);

/// The part of the request that is not UTF-8, as kInvalidArgument: of its path, its query, or the headers
/// that are looked at. Nothing: all is. Escapes that are broken are left to the door, and so are cookies,
/// which other programs of the host may have set.
std::optional<ApiError> problem_of_text(const HttpRequest& request);

}  // namespace gpusched::api
