#include "pilot/outgoing/outbox.h"

#include <algorithm>
#include <optional>
#include <span>

#include "ops/local_peer.h"

namespace gpusched::pilot {
namespace {

constexpr std::size_t kAnswerBytesMax = 1 << 20;

/// An address of 4 or 16 bytes; nothing: it has another length.
std::optional<IpAddress> address_of(std::span<const uint8_t> bytes) {
  IpAddress address;
  if (bytes.size() != 4 && bytes.size() != address.bytes.size()) return std::nullopt;
  if (bytes.size() == 4) address.bytes[10] = address.bytes[11] = 0xFF;
  std::ranges::copy(bytes, address.bytes.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  return address;
}

bool may_have(const std::vector<IpNetwork>& networks, bool is_loopback, std::span<const uint8_t> bytes) {
  const std::optional<IpAddress> address = address_of(bytes);
  if (!address || (is_loopback && !address->is_loopback())) return false;
  return networks.empty() ||
         std::ranges::any_of(networks, [&](const IpNetwork& network) { return network.contains(*address); });
}

}  // namespace

Outbox::Outbox(std::vector<Destination> allowed, AuditFile& audit, std::function<Time()> wall)
    : allowed_(std::move(allowed)), audit_(audit), wall_(std::move(wall)) {}

Result<HttpClient*> Outbox::client_of(const Destination& destination) {
  const auto known = clients_.find(destination.url);
  if (known != clients_.end()) return &known->second;
  const Result<HttpEndpoint> endpoint = parse_http_url(destination.url);
  if (!endpoint) return endpoint.error();
  HttpClientOptions options{
      .url = destination.url, .token = destination.token, .ca_file = destination.ca_file};
  options.answer_bytes_max = kAnswerBytesMax;
  options.user_agent = "gpu-pilot";
  const bool is_loopback = endpoint->unix_socket.empty() && ops::is_loopback(endpoint->host);
  if (is_loopback || !destination.addresses.empty()) {
    options.address_allowed = [networks = destination.addresses,
                               is_loopback](std::span<const uint8_t> address) {
      return may_have(networks, is_loopback, address);
    };
  }
  std::vector<std::string> secrets = destination.secrets;
  secrets.push_back(destination.token);
  options.before_send = [this, url = destination.url, secrets = std::move(secrets)](std::string_view bytes) {
    return audit_.sends(url, bytes, secrets, wall_());
  };
  Result<HttpClient> client = HttpClient::create(std::move(options));
  if (!client) return client.error();
  return &clients_.emplace(destination.url, std::move(*client)).first->second;
}

Result<HttpAnswer> Outbox::send(const std::string& url, const HttpRequest& request) {
  const auto destination = std::ranges::find(allowed_, url, &Destination::url);
  if (destination == allowed_.end()) {
    audit_.answered(url, 0, "not sent: it is none of the destinations of the configuration", wall_());
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = url + " is none of the destinations of the configuration; nothing was sent"};
  }
  const Result<HttpClient*> client = client_of(*destination);
  if (!client) return client.error();
  Result<HttpAnswer> answer = (*client)->request(request);
  if (!answer && answer.error().code == ErrorCode::kPermissionDenied) {
    answer = Error{.code = ErrorCode::kPermissionDenied,
                   .message = "the host of " + url +
                              " has an address that the configuration does not allow; nothing was sent"};
  }
  audit_.answered(url, answer ? answer->status : 0, answer ? "" : answer.error().message, wall_());
  return answer;
}

}  // namespace gpusched::pilot
