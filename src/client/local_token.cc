#include "client/local_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <vector>

#include "client/http_client.h"
#include "client/json.h"
#include "ops/api_socket.h"
#include "ops/local_peer.h"
#include "sign/peer_credential.h"

namespace gpusched {
namespace {

constexpr Duration kPatience = seconds(2);

uint16_t port_of(const HttpEndpoint& endpoint) {
  uint16_t port = 0;
  std::from_chars(endpoint.port.data(), endpoint.port.data() + endpoint.port.size(), port);
  return port;
}

/// Nobody answered; a certificate that is not trusted is an answer.
bool is_away(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout ||
         error.code == ErrorCode::kOutcomeUnknown;
}

}  // namespace

bool is_named_over_sockets() { return !sign::is_overflow_uid(geteuid()); }

std::string find_local_socket(const std::string& runtime_dir) {
  if (!is_named_over_sockets()) return {};
  const std::string path = ops::find_api_socket({ops::kSystemSocket, ops::personal_socket(runtime_dir)});
  return path.empty() ? path : std::string(kUnixScheme) + path;
}

namespace {

std::optional<std::string> find_token_at(const std::string& url, const std::string& ca_file) {
  const std::string none;
  const Result<HttpEndpoint> endpoint = parse_http_url(url);
  // Over a Unix socket nobody needs one: the scheduler knows who calls.
  if (!endpoint || !endpoint->unix_socket.empty() || !ops::is_loopback(endpoint->host)) return none;
  Result<HttpClient> client =
      HttpClient::create({.url = url, .ca_file = ca_file, .connect_timeout = kPatience});
  if (!client) return none;
  // Whether it is well does not matter, nor whether it answers without a token: it says where that is.
  const auto ask = [&client] {
    return client->request({.method = "GET", .target = "/health", .timeout = kPatience});
  };
  const Result<HttpAnswer> answer = ask();
  if (!answer) return is_away(answer.error()) ? std::nullopt : std::optional(none);
  const Result<Json> json = Json::parse(answer->body);
  if (!json || !json->is_object()) return none;
  const std::string path = (*json)["token_file"].text();
  if (path.empty()) return none;
  const Result<std::string> token = ops::read_local_token(path, endpoint->host, port_of(*endpoint), "http");
  if (token) return *token;
  // The file of one that ended meanwhile is believed as little as that of another's.
  const Result<HttpAnswer> still = ask();
  return !still && is_away(still.error()) ? std::nullopt : std::optional(none);
}

Result<Unit> check_one_receiver(const std::string& url, const std::string& token_file) {
  const Result<HttpEndpoint> endpoint = parse_http_url(url);
  if (!endpoint || !ops::is_loopback(endpoint->host)) return Unit{};
  const std::string& path = endpoint->unix_socket;
  if (!path.empty() && ops::find_api_socket({path}) == path) return Unit{};
  std::vector<uid_t> users;
  if (path.empty()) {
    users = ops::listening_users(endpoint->host, port_of(*endpoint));
  } else if (const std::optional<uid_t> user = ops::socket_listener(path)) {
    users.push_back(*user);
  }
  struct stat facts{};
  const bool owned = stat(token_file.c_str(), &facts) == 0;
  const uint32_t floor = ops::read_id_floor().uid;
  for (const uid_t user : users) {
    // Below the floor are the system's users, such as the scheduler's own.
    if (user == geteuid() || user < floor || (owned && user == facts.st_uid)) continue;
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = (path.empty() ? "port " + endpoint->port + " of this machine" : path) +
                            " belongs to user " + std::to_string(user) +
                            ", to whom the token would be disclosed. If that is your scheduler, run gpu-cli "
                            "as that user, or with a token file owned by that user"};
  }
  return Unit{};
}

}  // namespace

std::optional<std::string> find_local_token(const std::string& urls, const std::string& ca_file) {
  const std::vector<std::string> all = split_urls(urls);
  // A token that is found for one is sent to all of them.
  for (std::size_t i = 0; all.size() > 1 && i < all.size(); ++i) {
    const Result<HttpEndpoint> endpoint = parse_http_url(all[i]);
    if (!endpoint || !ops::is_loopback(endpoint->host)) return std::string();
  }
  bool any_is_there = false;
  for (const std::string& url : all) {
    const std::optional<std::string> token = find_token_at(url, ca_file);
    if (token && !token->empty()) return token;
    any_is_there = any_is_there || token.has_value();
  }
  return any_is_there ? std::optional<std::string>("") : std::nullopt;
}

Result<Unit> check_token_receiver(const std::string& urls, const std::string& token_file) {
  for (const std::string& url : split_urls(urls)) {
    if (const Result<Unit> may = check_one_receiver(url, token_file); !may) return may;
  }
  return Unit{};
}

}  // namespace gpusched
