#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/net/webhook_url.h"
#include "base/time.h"

namespace gpusched {

/// An HTTP endpoint on a node that tasks are sent to, and how. The operator's, from the configuration.
struct Endpoint {
  std::string url;  ///< "http://ADDRESS[:port][/path][?query]", as `parse_endpoint_url` takes it.
  std::string health_path = {};      ///< Asked by GET before tasks are sent; empty: it is not asked.
  Duration timeout = seconds(300);   ///< Limit of one try, from connecting to the answer's last byte.
  int64_t retries = 3;               ///< Further tries, 0 to kEndpointRetriesMax.
  Duration patience = seconds(300);  ///< A task waits so long for the endpoint to be healthy.

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

inline constexpr int64_t kEndpointRetriesMax = 10;
inline constexpr std::size_t kEndpointUrlBytesMax = 1'024;
inline constexpr Duration kEndpointSpanMax = hours(24);

/// A URL whose host is an IP address or "localhost", so that nothing is looked up, and which stands in a
/// shell's single quotes as it is; nothing for any other.
std::optional<WebhookUrl> parse_endpoint_url(std::string_view text);
/// Whether the host is the node itself: "localhost", 127.0.0.0/8 or [::1].
bool is_loopback(const WebhookUrl& url);
/// A path with a query or without; it begins with '/'.
bool is_health_path(std::string_view path);

/// As one line without a blank at its ends, for `parse_endpoint`.
std::string to_text(const Endpoint& endpoint);
/// Reads a text that `to_text` made; nothing for any other, nor for values out of range.
std::optional<Endpoint> parse_endpoint(std::string_view text);

}  // namespace gpusched
