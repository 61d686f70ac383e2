#include "pilot/outgoing/outbox.h"

#include <algorithm>
#include <span>

#include "ops/local_peer.h"

namespace gpusched::pilot {
namespace {

constexpr std::size_t kAnswerBytesMax = 1 << 20;

bool is_loopback_address(std::span<const uint8_t> address) {
  if (address.size() == 4) return address[0] == 127;
  const bool is_one = address.size() == 16 && address[15] == 1;
  return is_one && std::ranges::all_of(address.first(15), [](uint8_t byte) { return byte == 0; });
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
  if (endpoint->unix_socket.empty() && ops::is_loopback(endpoint->host))
    options.address_allowed = is_loopback_address;
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
  audit_.answered(url, answer ? answer->status : 0, answer ? "" : answer.error().message, wall_());
  return answer;
}

}  // namespace gpusched::pilot
