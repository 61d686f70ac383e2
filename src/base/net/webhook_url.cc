#include "base/net/webhook_url.h"

#include <algorithm>

namespace gpusched {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool in_name(char c) { return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '.' || c == '_'; }

bool in_address(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || c == ':' || c == '.'; }

bool is_host(std::string_view host) {
  if (host.starts_with('[')) {
    if (host.size() < 4 || !host.ends_with(']')) return false;
    host = host.substr(1, host.size() - 2);
    return std::all_of(host.begin(), host.end(), in_address);
  }
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), in_name);
}

bool is_port(std::string_view port) {
  if (port.empty() || port.size() > 5 || port.front() == '0') return false;
  int number = 0;
  for (const char c : port) {
    if (!is_digit(c)) return false;
    number = number * 10 + (c - '0');
  }
  return number <= 65'535;
}

}  // namespace

std::optional<WebhookUrl> parse_webhook_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (lower(text.substr(0, kScheme.size())) != kScheme) return std::nullopt;
  text.remove_prefix(kScheme.size());
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c > 0x20 && c < 0x7F && c != '#' && c != '\\' && c != '"' && c != '<' && c != '>';
  });
  if (!plain) return std::nullopt;
  const std::string_view authority = text.substr(0, text.find_first_of("/?"));
  text.remove_prefix(authority.size());
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  WebhookUrl url{.host = lower(authority.substr(0, colon)),
                 .port = colon == std::string_view::npos ? "80" : std::string(authority.substr(colon + 1)),
                 .target = std::string(text)};
  if (!is_host(url.host) || !is_port(url.port)) return std::nullopt;
  if (!url.target.starts_with('/')) url.target.insert(url.target.begin(), '/');
  return url;
}

bool is_listed(const WebhookUrl& url, const std::vector<std::string>& list) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& entry) {
    const std::string word = lower(entry);
    return word == url.host || word == url.host + ':' + url.port;
  });
}

}  // namespace gpusched
