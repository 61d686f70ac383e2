#include <algorithm>
#include <charconv>

#include "client/http_client.h"
#include "ops/socket_file.h"

namespace gpusched {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::string_view kTlsScheme = "https://";

Error bad_url(std::string_view url, std::string_view why) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = "\"" + std::string(url) + "\" is not the URL of a scheduler: " + std::string(why)};
}

}  // namespace

std::string url_encoded(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || c == '-' || c == '.' || c == '_' || c == '~') {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

std::vector<std::string> split_urls(std::string_view list) {
  std::vector<std::string> urls;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string_view url = list.substr(begin, end - begin);
    while (url.starts_with(' ')) url.remove_prefix(1);
    while (url.ends_with(' ') || (url.ends_with('/') && !url.ends_with("://"))) url.remove_suffix(1);
    urls.emplace_back(url);
    begin = end + 1;
  }
  return urls;
}

void set_urls(HttpClientOptions& options, std::string_view list) {
  options.other_urls = split_urls(list);
  options.url = options.other_urls.front();
  options.other_urls.erase(options.other_urls.begin());
}

namespace {

Result<HttpEndpoint> parse_unix_url(std::string_view url) {
  HttpEndpoint out{
      .unix_socket = std::string(url.substr(kUnixScheme.size())), .host = "localhost", .port = "80"};
  if (!out.unix_socket.starts_with('/')) return bad_url(url, "expected unix:///path/of/the/socket");
  if (out.unix_socket.size() > ops::kSocketPathMax) {
    return bad_url(url,
                   "the path of a Unix socket has at most " + std::to_string(ops::kSocketPathMax) + " bytes");
  }
  for (const char c : out.unix_socket) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f')
      return bad_url(url, "the path has control characters");
  }
  return out;
}

}  // namespace

Result<HttpEndpoint> parse_http_url(std::string_view url) {
  if (url.starts_with(kUnixScheme)) return parse_unix_url(url);
  std::string_view rest = url;
  HttpEndpoint out;
  out.tls = rest.starts_with(kTlsScheme);
  if (out.tls) {
    rest.remove_prefix(kTlsScheme.size());
  } else if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
  }
  if (rest.find("://") != std::string_view::npos)
    return bad_url(url, "expected http://host:port, https://host:port or unix:///path");
  for (const char c : rest) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '?' || c == '#' || c == '@') {
      return bad_url(url, "expected http://host:port");
    }
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    out.prefix = rest.substr(slash);
    while (out.prefix.ends_with('/')) out.prefix.pop_back();
    rest = rest.substr(0, slash);
  }
  std::string_view port;
  if (rest.starts_with('[')) {
    const size_t bracket = rest.find(']');
    if (bracket == std::string_view::npos) return bad_url(url, "the bracket is not closed");
    out.host = rest.substr(1, bracket - 1);
    port = rest.substr(bracket + 1);
    if (!port.empty() && port.front() != ':') return bad_url(url, "expected http://[address]:port");
    if (!port.empty()) port.remove_prefix(1);
  } else {
    const size_t colon = rest.find(':');
    out.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) port = rest.substr(colon + 1);
    if (port.find(':') != std::string_view::npos) {
      return bad_url(url, "write an IPv6 address in brackets, as http://[::1]:8080");
    }
  }
  if (out.host.empty()) return bad_url(url, "the host is missing; expected http://host:port");
  out.port = !port.empty() ? std::string(port) : out.tls ? "443" : "80";
  unsigned number = 0;
  const char* const end = out.port.data() + out.port.size();
  const auto [stop, failure] = std::from_chars(out.port.data(), end, number);
  if (failure != std::errc{} || stop != end || number == 0 || number > 65'535) {
    return bad_url(url, "the port is not a number from 1 to 65535");
  }
  return out;
}

}  // namespace gpusched
