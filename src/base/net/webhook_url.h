#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpusched {

/// Where something is told of by HTTP. Only what is unambiguous is one: no user, no fragment, no control or
/// non-ASCII characters, so that nothing is called but the host that was read here.
struct WebhookUrl {
  std::string host;    ///< Host in lower case; an IPv6 address in brackets.
  std::string port;    ///< Port in decimal; "80" if none was given.
  std::string target;  ///< Path and query; begins with '/'.
};

/// Parses "http://host[:port][/path][?query]"; nothing for anything else.
std::optional<WebhookUrl> parse_webhook_url(std::string_view text);

/// Whether `list` has the host, as "host" for each of its ports or as "host:port". Names are compared as they
/// are written, case ignored; none stands for several hosts.
bool is_listed(const WebhookUrl& url, const std::vector<std::string>& list);

}  // namespace gpusched
