#include "api/http/cookies.h"

#include <algorithm>

namespace gpusched::api {
namespace {

constexpr std::size_t kValueBytesMax = 128;

/// A browser takes a cookie with this prefix from its own host alone, over https, for the whole host: no
/// neighbour of the host's name can put one there.
std::string named(const BrowserPlace& place, std::string_view name) {
  return (place.is_https ? "__Host-" : "") + std::string(name);
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace

std::string session_cookie(const BrowserPlace& place) { return named(place, "gpu-session"); }
std::string sign_in_cookie(const BrowserPlace& place) { return named(place, "gpu-sign-in"); }

FoundCookie find_cookie(std::string_view header, std::string_view name) {
  FoundCookie found;
  while (!header.empty()) {
    const std::string_view pair = header.substr(0, header.find(';'));
    header.remove_prefix(std::min(pair.size() + 1, header.size()));
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || trimmed(pair.substr(0, equals)) != name) continue;
    if (found.is_there) return {.is_there = true};
    found = {.is_there = true, .value = trimmed(pair.substr(equals + 1))};
  }
  if (found.value.size() > kValueBytesMax) found.value = {};
  return found;
}

std::string set_cookie(const BrowserPlace& place, const std::string& name, std::string_view value,
                       int64_t lives_seconds, bool is_strict) {
  return name + "=" + std::string(value) + "; Path=/; HttpOnly; SameSite=" + (is_strict ? "Strict" : "Lax") +
         "; Max-Age=" + std::to_string(std::max<int64_t>(lives_seconds, 0)) +
         (place.is_https ? "; Secure" : "");
}

std::optional<ApiError> check_own_page(const HttpRequest& request, const BrowserPlace& place) {
  if (request.host_count != 1 || lower(request.host) != place.host)
    return ApiError{ErrorKind::kPermissionDenied,
                    "this browser signed in to " + place.origin +
                        ", and the request names another host, so that its cookie does not count; open " +
                        place.origin + " instead"};
  const bool says_own = lower(request.origin) == place.origin;
  const bool is_own = request.fetch_site == "same-origin";
  const bool is_nobodys = request.fetch_site.empty() || request.fetch_site == "none";
  bool counts = (request.origin.empty() || says_own) && (is_own || is_nobodys);
  const bool reads =
      (request.method == HttpMethod::kGet || request.method == HttpMethod::kHead) && !request.wants_websocket;
  if (!reads) counts = counts && (says_own || is_own);
  if (counts) return std::nullopt;
  return ApiError{
      ErrorKind::kPermissionDenied,
      "a browser's session is for the pages of " + place.origin +
          " alone, and this request does not show that it is from one of them; open the page "
          "there, and let programs send `Authorization: Bearer <credential>` instead of a cookie"};
}

}  // namespace gpusched::api
