#include "base/net/endpoint.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace gpusched {
namespace {

constexpr std::string_view kNoPath = "-";

/// Four numbers from 0 to 255 between dots, without zeros in front.
std::optional<std::array<int, 4>> parse_quad(std::string_view text) {
  std::array<int, 4> quad{};
  for (std::size_t i = 0; i < quad.size(); ++i) {
    const std::string_view number = text.substr(0, text.find('.'));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), quad[i]);
    if (error != std::errc() || end != number.data() + number.size() || quad[i] < 0 || quad[i] > 255)
      return std::nullopt;
    if (number.size() != std::to_string(quad[i]).size()) return std::nullopt;
    text.remove_prefix(number.size());
    const bool is_last = i + 1 == quad.size();
    if (is_last != text.empty()) return std::nullopt;
    if (!is_last) text.remove_prefix(1);
  }
  return quad;
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F && c != '\''; });
}

std::optional<int64_t> number_in(std::string_view text, int64_t least, int64_t most) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    return std::nullopt;
  return number;
}

}  // namespace

std::optional<WebhookUrl> parse_endpoint_url(std::string_view text) {
  if (text.size() > kEndpointUrlBytesMax || !is_plain(text)) return std::nullopt;
  std::optional<WebhookUrl> url = parse_webhook_url(text);
  if (!url) return std::nullopt;
  if (url->host != "localhost" && !url->host.starts_with('[') && !parse_quad(url->host)) return std::nullopt;
  return url;
}

bool is_loopback(const WebhookUrl& url) {
  if (url.host == "localhost" || url.host == "[::1]") return true;
  const std::optional<std::array<int, 4>> quad = parse_quad(url.host);
  return quad && quad->front() == 127;
}

bool is_health_path(std::string_view path) {
  return path.starts_with('/') && path.size() <= kEndpointUrlBytesMax && is_plain(path) &&
         path.find('#') == std::string_view::npos;
}

std::string to_text(const Endpoint& endpoint) {
  return endpoint.url + ' ' + (endpoint.health_path.empty() ? std::string(kNoPath) : endpoint.health_path) +
         ' ' + std::to_string(endpoint.timeout.ms()) + ' ' + std::to_string(endpoint.retries) + ' ' +
         std::to_string(endpoint.patience.ms());
}

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  std::array<std::string_view, 5> words{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t end = text.find(' ');
    words[i] = text.substr(0, end);
    const bool is_last = i + 1 == words.size();
    if (is_last != (end == std::string_view::npos)) return std::nullopt;
    if (!is_last) text.remove_prefix(end + 1);
  }
  Endpoint endpoint{.url = std::string(words[0])};
  if (words[1] != kNoPath) endpoint.health_path = words[1];
  const auto timeout = number_in(words[2], 1, kEndpointSpanMax.ms());
  const auto retries = number_in(words[3], 0, kEndpointRetriesMax);
  const auto patience = number_in(words[4], 0, kEndpointSpanMax.ms());
  if (!parse_endpoint_url(endpoint.url) || !timeout || !retries || !patience) return std::nullopt;
  if (!endpoint.health_path.empty() && !is_health_path(endpoint.health_path)) return std::nullopt;
  endpoint.timeout = milliseconds(*timeout);
  endpoint.retries = *retries;
  endpoint.patience = milliseconds(*patience);
  return endpoint;
}

}  // namespace gpusched
