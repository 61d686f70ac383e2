#include "api/http/request_rules.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace gpusched::api {
namespace {

constexpr uint32_t kPortMax = 65'535;

ApiError invalid(std::string sentence, std::string field = {}) {
  return {ErrorKind::kInvalidArgument, std::move(sentence), std::move(field)};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_word(std::string_view text, std::string_view word) {
  return std::equal(text.begin(), text.end(), word.begin(), word.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

/// A name or an IPv4 address; "_" and "-" are common in names of containers.
bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_';
  });
}
bool is_bracketed_address(std::string_view name) {
  if (name.size() < 4 || !name.starts_with('[') || !name.ends_with(']')) return false;
  name = name.substr(1, name.size() - 2);
  return std::all_of(name.begin(), name.end(), [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.';
  });
}

struct HostAndPort {
  std::string name;  ///< In small letters.
  uint32_t port = 0;
};

/// Nothing: it is no "host" or "host:port".
std::optional<HostAndPort> read_host(std::string_view text, uint32_t default_port) {
  HostAndPort host{.name = {}, .port = default_port};
  const std::size_t name_end = text.starts_with('[') ? text.find(']') : text.find(':');
  std::size_t colon = name_end;
  if (text.starts_with('[') && name_end != std::string_view::npos) colon = name_end + 1;
  const std::string_view name = text.substr(0, colon);
  if (!is_name(name) && !is_bracketed_address(name)) return std::nullopt;
  host.name = name;
  for (char& c : host.name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (colon >= text.size()) return host;
  const std::string_view port = text.substr(colon + 1);
  if (text[colon] != ':' || port.empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), host.port);
  if (error != std::errc() || end != port.data() + port.size() || host.port > kPortMax) return std::nullopt;
  return host;
}

std::optional<ApiError> problem_of_target(const HttpRequest& request) {
  const auto is_text = [](std::string_view encoded, bool plus_is_space) {
    if (is_utf8(encoded) && encoded.find('%') == std::string_view::npos) return true;
    const std::optional<std::string> decoded = percent_decoded(encoded, plus_is_space);
    return decoded ? is_utf8(*decoded) : is_utf8(encoded);
  };
  if (!is_text(request.path, false)) {
    return invalid("the path has bytes that are not UTF-8; send text in UTF-8 and percent-encode it", "path");
  }
  std::string_view query = request.query;
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    const std::size_t equals = pair.find('=');
    const std::string_view name = pair.substr(0, equals);
    const bool name_is_text = is_text(name, true);
    if (name_is_text && (equals == std::string_view::npos || is_text(pair.substr(equals + 1), true)))
      continue;
    const std::string shown =
        name_is_text ? percent_decoded(name, true).value_or(std::string(name)) : std::string();
    return invalid("the query has bytes that are not UTF-8; send text in UTF-8 and percent-encode it", shown);
  }
  return std::nullopt;
}

std::optional<ApiError> problem_of_headers(const HttpRequest& request) {
  const std::pair<std::string_view, std::string_view> headers[] = {
      {"Authorization", request.authorization},
      {"X-Requested-By", request.requested_by},
      {"Idempotency-Key", request.idempotency_key},
      {"Origin", request.origin},
      {"Accept", request.accept},
      {"Content-Type", request.content_type},
      {"Sec-Fetch-Site", request.fetch_site},
      {"Sec-WebSocket-Key", request.websocket_key},
      {"Sec-WebSocket-Version", request.websocket_version},
      {"X-Request-Id", request.request_id},
      {"traceparent", request.traceparent},
      {"Last-Event-ID", request.last_event_id},
      {"Access-Control-Request-Method", request.cors_method},
      {"Access-Control-Request-Headers", request.cors_headers}};
  for (const auto& [name, value] : headers) {
    if (is_utf8(value)) continue;
    return invalid("the header " + std::string(name) + " has bytes that are not UTF-8; send text in UTF-8",
                   std::string(name));
  }
  return std::nullopt;
}

}  // namespace

std::optional<AbsoluteTarget> read_absolute(std::string_view target) {
  const std::size_t colon = target.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view scheme = target.substr(0, colon);
  if (!is_word(scheme, "http") && !is_word(scheme, "https")) return std::nullopt;
  const std::string_view behind = target.substr(colon + 3);
  const std::size_t end = std::min(behind.find_first_of("/?#"), behind.size());
  return AbsoluteTarget{.scheme = scheme, .authority = behind.substr(0, end), .rest = behind.substr(end)};
}

std::string_view violation_of(const RequestHost& request) {
  if (request.host_count > 1) return "it has more than one Host header; name the scheduler's host once";
  const bool is_path = request.target.starts_with('/') || (request.target == "*" && request.is_options);
  const std::optional<AbsoluteTarget> absolute = is_path ? std::nullopt : read_absolute(request.target);
  if (!is_path && !absolute)
    return "its target is neither a path nor an http URL; ask for a path, such as /health";
  if (request.host_count == 0 && !request.version_1_0)
    return "it has no Host header; name the scheduler's host, as in \"Host: 127.0.0.1:8080\"";
  const uint32_t default_port = absolute && is_word(absolute->scheme, "https") ? 443 : 80;
  const std::optional<HostAndPort> host = read_host(request.host, default_port);
  if (request.host_count == 1 && !host)
    return "its Host header is not a host with or without a port; name one, as in \"Host: 127.0.0.1:8080\"";
  if (!absolute) return {};
  const std::optional<HostAndPort> named = read_host(absolute->authority, default_port);
  const bool is_same = named && (!host || (named->name == host->name && named->port == host->port));
  if (is_same) return {};
  return "its target is for another host than its Host header names, and this scheduler is no proxy; ask for "
         "a path, "
         "such as /health";
}

std::optional<ApiError> problem_of_text(const HttpRequest& request) {
  if (auto problem = problem_of_target(request)) return problem;
  return problem_of_headers(request);
}

}  // namespace gpusched::api
