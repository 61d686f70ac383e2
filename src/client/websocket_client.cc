#include "client/websocket_client.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <cctype>
#include <charconv>
#include <deque>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/net/websocket.h"
#include "client/connection.h"

namespace gpusched {
namespace {

using boost::system::error_code;
using client_internal::Connection;
using websocket::Opcode;
using websocket::Parser;

constexpr std::size_t kUpgradeBytesMax = 64 * 1024;
constexpr std::size_t kBodyBytesMax = 1u << 20;  // Body of a refusal.
constexpr std::size_t kMessageBytesMax = 16u << 20;
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kStatusSwitching = 101;

std::string random_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return bytes;
}

uint32_t random_mask() {
  uint32_t mask = 0;
  CHECK(::getrandom(&mask, sizeof mask, 0) == static_cast<ssize_t>(sizeof mask));
  return mask;
}

Error unavailable(std::string why) { return {.code = ErrorCode::kUnavailable, .message = std::move(why)}; }

Error error_of(const error_code& code, const Connection& connection) {
  if (code == boost::asio::error::timed_out)
    return {.code = ErrorCode::kTimeout, .message = "no answer in time"};
  if (code == boost::asio::error::eof) return unavailable("the connection was closed");
  return unavailable(connection.why());
}

Result<Unit> send_all(Connection& connection, std::string_view bytes) {
  while (!bytes.empty()) {
    error_code failure;
    bytes.remove_prefix(
        connection.write_some(boost::asio::const_buffer(bytes.data(), bytes.size()), failure));
    if (failure) return error_of(failure, connection);
  }
  return Unit{};
}

/// Appends what there is; waits for the first byte.
Result<Unit> receive_some(Connection& connection, std::string& buffer) {
  std::array<char, kReadBytes> piece;
  error_code failure;
  const std::size_t got =
      connection.read_some(boost::asio::mutable_buffer(piece.data(), piece.size()), failure);
  if (failure) return error_of(failure, connection);
  buffer.append(piece.data(), got);
  return Unit{};
}

struct Head {
  int status = 0;
  std::map<std::string, std::string> fields;  ///< Names in lower case.

  std::string field(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  }
};

/// Parses "HTTP/1.1 101 Switching Protocols" and what follows; nothing when it is no HTTP.
std::optional<Head> parse_head(std::string_view text) {
  Head head;
  if (!text.starts_with("HTTP/1.") || text.size() < 12) return std::nullopt;
  const std::string_view status = text.substr(9, 3);
  if (std::from_chars(status.data(), status.data() + 3, head.status).ptr != status.data() + 3)
    return std::nullopt;
  std::size_t at = text.find("\r\n");
  while (at != std::string_view::npos && at + 2 < text.size()) {
    at += 2;
    const std::size_t end = std::min(text.find("\r\n", at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end == text.size() ? std::string_view::npos : end;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    while (!value.empty() && value.back() == ' ') value.remove_suffix(1);
    head.fields[name] = std::string(value);
  }
  return head;
}

}  // namespace

struct WebSocketClient::Impl {
  explicit Impl(std::unique_ptr<Connection> connected) : connection(std::move(connected)) {}

  std::unique_ptr<Connection> connection;
  Parser parser{false, kMessageBytesMax};
  std::string in;   ///< Not parsed yet.
  std::string out;  ///< Not sent yet.
  std::size_t out_begin = 0;
  std::deque<Message> messages;
  bool close_sent = false;
  bool over = false;
  std::string reason;
  uint16_t close_code = 0;

  void send_frame(Opcode opcode, std::string_view data) {
    if (over || close_sent) return;
    out += websocket::encode_frame(opcode, data, random_mask());
    flush();
  }
  void end(std::string why) {
    if (std::exchange(over, true)) return;
    reason = std::move(why);
  }
  void flush();
  void receive();
  void parse();
  void on_frame();
};

void WebSocketClient::Impl::flush() {
  while (!over && out_begin < out.size()) {
    std::size_t sent = 0;
    const Connection::Step step = connection->write(out.data() + out_begin, out.size() - out_begin, sent);
    if (step == Connection::Step::kAgain) break;
    // The server may have said why before it went: what it sent is read first.
    out_begin = step == Connection::Step::kDone ? out_begin + sent : out.size();
  }
  out.erase(0, std::exchange(out_begin, 0));
}

/// Takes in what there is, and what poll does not tell of.
void WebSocketClient::Impl::receive() {
  std::array<char, kReadBytes> piece;
  Connection::Step step = Connection::Step::kDone;
  do {
    std::size_t got = 0;
    step = connection->read(piece.data(), piece.size(), got);
    if (step == Connection::Step::kDone) in.append(piece.data(), got);
  } while (step == Connection::Step::kDone && connection->buffered());
  parse();
  if (step == Connection::Step::kEnd) end("the connection was closed");
  if (step == Connection::Step::kBroken) end(connection->why());
}

void WebSocketClient::Impl::parse() {
  std::string_view rest = in;
  while (!over && !rest.empty()) {
    std::size_t used = 0;
    const auto status = parser.put(rest, used);
    rest.remove_prefix(used);
    if (status == Parser::Status::kBad) {
      send_frame(Opcode::kClose, websocket::close_payload(parser.close_code(), parser.error()));
      end("the answer is not a WebSocket: " + std::string(parser.error()));
    }
    if (status == Parser::Status::kMessage) on_frame();
  }
  in.erase(0, in.size() - rest.size());
}

void WebSocketClient::Impl::on_frame() {
  switch (parser.opcode()) {
    case Opcode::kText:
    case Opcode::kBinary:
      messages.push_back({parser.opcode() == Opcode::kText, std::move(parser.data())});
      return;
    case Opcode::kPing:
      return send_frame(Opcode::kPong, parser.data());
    case Opcode::kClose: {
      const std::string payload = parser.data();
      if (payload.size() >= 2) {
        close_code =
            static_cast<uint16_t>(static_cast<uint8_t>(payload[0]) << 8 | static_cast<uint8_t>(payload[1]));
      }
      send_frame(Opcode::kClose, payload.substr(0, 2));
      return end(payload.size() > 2 ? payload.substr(2) : std::string());
    }
    case Opcode::kContinuation:
    case Opcode::kPong:
      return;
  }
}

WebSocketClient::WebSocketClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WebSocketClient::WebSocketClient(WebSocketClient&&) noexcept = default;
WebSocketClient& WebSocketClient::operator=(WebSocketClient&&) noexcept = default;
WebSocketClient::~WebSocketClient() = default;

Result<WebSocketClient::Connected> WebSocketClient::connect(const HttpClientOptions& options,
                                                            const std::string& target, Duration timeout) {
  Result<Connected> connected = connect_to(options.url, options, target, timeout);
  for (const std::string& url : options.other_urls) {
    if (connected || connected.error().code != ErrorCode::kUnavailable) break;
    connected = connect_to(url, options, target, timeout);
  }
  return connected;
}

Result<WebSocketClient::Connected> WebSocketClient::connect_to(const std::string& url,
                                                               const HttpClientOptions& options,
                                                               const std::string& target, Duration timeout) {
  const Result<HttpEndpoint> endpoint = parse_http_url(url);
  if (!endpoint) return endpoint.error();
  Result<std::unique_ptr<Connection>> opened = Connection::open(*endpoint, options);
  if (!opened) return opened.error();
  Connection& connection = **opened;
  connection.expires_at(Connection::Clock::now() + std::chrono::nanoseconds(timeout.ns));
  const std::string key = websocket::base64(random_bytes(16));
  const bool ipv6 = endpoint->host.find(':') != std::string::npos;
  std::string request = "GET " + endpoint->prefix + target +
                        " HTTP/1.1\r\nHost: " + (ipv6 ? "[" + endpoint->host + "]" : endpoint->host) + ":" +
                        endpoint->port +
                        "\r\nUser-Agent: gpu-cli\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
                        key + "\r\n";
  if (!options.token.empty()) request += "Authorization: Bearer " + options.token + "\r\n";
  if (const Result<Unit> sent = send_all(connection, request + "\r\n"); !sent) return sent.error();

  std::string in;
  std::size_t head_end = std::string::npos;
  while ((head_end = in.find("\r\n\r\n")) == std::string::npos) {
    if (in.size() > kUpgradeBytesMax) return unavailable("the server does not speak HTTP");
    if (const Result<Unit> got = receive_some(connection, in); !got) return got.error();
  }
  const std::optional<Head> head = parse_head(std::string_view(in).substr(0, head_end));
  if (!head) return unavailable("the server does not speak HTTP");
  in.erase(0, head_end + 4);
  Connected connected;
  if (head->status == kStatusSwitching && head->field("sec-websocket-accept") == websocket::accept_key(key)) {
    auto impl = std::make_unique<Impl>(std::move(*opened));
    impl->in = std::move(in);
    impl->parse();
    if (impl->connection->buffered()) impl->receive();
    connected.socket = WebSocketClient(std::move(impl));
    return connected;
  }
  connected.answer = {.status = head->status, .retry_after = head->field("retry-after")};
  std::size_t length = 0;
  const std::string length_text = head->field("content-length");
  std::from_chars(length_text.data(), length_text.data() + length_text.size(), length);
  while (in.size() < std::min(length, kBodyBytesMax)) {
    if (const Result<Unit> got = receive_some(connection, in); !got) break;
  }
  connected.answer.body = in.substr(0, length);
  return connected;
}

int WebSocketClient::descriptor() const { return impl_->connection->descriptor(); }
void WebSocketClient::send(bool is_text, std::string_view data) {
  impl_->send_frame(is_text ? Opcode::kText : Opcode::kBinary, data);
}
void WebSocketClient::close(uint16_t code) {
  impl_->send_frame(Opcode::kClose, websocket::close_payload(code, {}));
  impl_->close_sent = true;
}
std::size_t WebSocketClient::unsent() const { return impl_->out.size(); }

void WebSocketClient::pump(bool read) {
  impl_->flush();
  if (read && !impl_->over) impl_->receive();
}

std::optional<WebSocketClient::Message> WebSocketClient::take() {
  if (impl_->messages.empty()) return std::nullopt;
  Message message = std::move(impl_->messages.front());
  impl_->messages.pop_front();
  return message;
}

bool WebSocketClient::over() const { return impl_->over && impl_->messages.empty(); }
const std::string& WebSocketClient::reason() const { return impl_->reason; }
uint16_t WebSocketClient::close_code() const { return impl_->close_code; }

}  // namespace gpusched
