#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/contract/browser_sessions.h"
#include "api/http/http_message.h"

/// Cookies of people who signed in with a browser, and what a request must show before one counts.
namespace gpusched::api {

/// The cookie whose value is a session's id.
std::string session_cookie(const BrowserPlace& place);
/// The cookie that binds a sign-in under way to its browser.
std::string sign_in_cookie(const BrowserPlace& place);

/// A cookie of that name in a Cookie header. `is_there` without a value: there are several, of which nobody
/// can say which is ours, or it is longer than any of ours.
struct FoundCookie {
  bool is_there = false;
  std::string_view value = {};
};
FoundCookie find_cookie(std::string_view header, std::string_view name);

/// The value of a Set-Cookie header: for this origin alone, unseen by scripts, over https alone where the
/// origin has it. `lives_seconds` 0: the browser forgets it now. `is_strict`: it is sent with requests of our
/// own pages alone; else also when another site leads the browser here.
std::string set_cookie(const BrowserPlace& place, const std::string& name, std::string_view value,
                       int64_t lives_seconds, bool is_strict);

/// Why a cookie in this request does not count: it came under another name of the host, or by the doing of
/// another origin's page. A write and a WebSocket must show that a page of ours asks; a read must not show
/// the opposite. Nothing: it counts.
std::optional<ApiError> check_own_page(const HttpRequest& request, const BrowserPlace& place);

}  // namespace gpusched::api
