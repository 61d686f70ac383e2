#include "client/websocket_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/net/websocket.h"

namespace gpusched {
namespace {

using websocket::Opcode;
using websocket::Parser;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kUpgradeBytesMax = 64 * 1024;
constexpr std::size_t kBodyBytesMax = 1u << 20;  // Of a refusal.
constexpr std::size_t kMessageBytesMax = 16u << 20;
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kStatusSwitching = 101;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

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

std::string reason_of(int error) {
  if (error == ECONNREFUSED) return "connection refused";
  if (error == ECONNRESET || error == EPIPE) return "the connection broke";
  return std::strerror(error);
}

/// Waits until `what` (POLLIN or POLLOUT) is possible; false when the deadline came first.
bool wait_for(int fd, short what, SteadyClock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
    pollfd source{.fd = fd, .events = what, .revents = 0};
    const int ready = ::poll(&source, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

Result<Descriptor> open_connection(const HttpEndpoint& endpoint, Duration timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &found) != 0)
    return unavailable("the host name could not be resolved");
  int error = ECONNREFUSED;
  Descriptor connected;
  const auto deadline = SteadyClock::now() + std::chrono::nanoseconds(timeout.ns);
  for (const addrinfo* entry = found; entry != nullptr && connected.get() < 0; entry = entry->ai_next) {
    Descriptor socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) continue;
    error = ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!wait_for(socket.get(), POLLOUT, deadline)) error = ETIMEDOUT;
      if (error != ETIMEDOUT) ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) connected = std::move(socket);
  }
  ::freeaddrinfo(found);
  if (connected.get() < 0) return unavailable(reason_of(error));
  const int on = 1;
  ::setsockopt(connected.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(connected.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  return connected;
}

Result<Unit> send_all(int fd, std::string_view bytes, SteadyClock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, deadline))
        return Error{.code = ErrorCode::kTimeout, .message = "no answer in time"};
    } else if (errno != EINTR) {
      return unavailable(reason_of(errno));
    }
  }
  return Unit{};
}

/// Appends what there is; waits for the first byte.
Result<Unit> receive_some(int fd, std::string& buffer, SteadyClock::time_point deadline) {
  std::array<char, kReadBytes> piece;
  while (true) {
    const ssize_t got = ::recv(fd, piece.data(), piece.size(), 0);
    if (got > 0) {
      buffer.append(piece.data(), static_cast<std::size_t>(got));
      return Unit{};
    }
    if (got == 0) return unavailable("the connection was closed");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return unavailable(reason_of(errno));
    if (!wait_for(fd, POLLIN, deadline))
      return Error{.code = ErrorCode::kTimeout, .message = "no answer in time"};
  }
}

struct Head {
  int status = 0;
  std::map<std::string, std::string> fields;  ///< Names in lower case.

  std::string field(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  }
};

/// Of "HTTP/1.1 101 Switching Protocols" and what follows; nothing when it is no HTTP.
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
  explicit Impl(Descriptor connected) : socket(std::move(connected)) {}

  Descriptor socket;
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
  void parse();
  void on_frame();
};

void WebSocketClient::Impl::flush() {
  while (!over && out_begin < out.size()) {
    const ssize_t sent = ::send(socket.get(), out.data() + out_begin, out.size() - out_begin, MSG_NOSIGNAL);
    if (sent > 0) {
      out_begin += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // The server may have said why before it went: what it sent is read first.
      out_begin = out.size();
    }
  }
  out.erase(0, std::exchange(out_begin, 0));
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
  const Result<HttpEndpoint> endpoint = parse_http_url(options.url);
  if (!endpoint) return endpoint.error();
  Result<Descriptor> socket = open_connection(*endpoint, options.connect_timeout);
  if (!socket) return socket.error();
  const auto deadline = SteadyClock::now() + std::chrono::nanoseconds(timeout.ns);
  const int fd = socket->get();
  const std::string key = websocket::base64(random_bytes(16));
  const bool ipv6 = endpoint->host.find(':') != std::string::npos;
  std::string request = "GET " + endpoint->prefix + target +
                        " HTTP/1.1\r\nHost: " + (ipv6 ? "[" + endpoint->host + "]" : endpoint->host) + ":" +
                        endpoint->port +
                        "\r\nUser-Agent: gpu-cli\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
                        key + "\r\n";
  if (!options.token.empty()) request += "Authorization: Bearer " + options.token + "\r\n";
  if (const Result<Unit> sent = send_all(fd, request + "\r\n", deadline); !sent) return sent.error();

  std::string in;
  std::size_t head_end = std::string::npos;
  while ((head_end = in.find("\r\n\r\n")) == std::string::npos) {
    if (in.size() > kUpgradeBytesMax) return unavailable("the server does not speak HTTP");
    if (const Result<Unit> got = receive_some(fd, in, deadline); !got) return got.error();
  }
  const std::optional<Head> head = parse_head(std::string_view(in).substr(0, head_end));
  if (!head) return unavailable("the server does not speak HTTP");
  in.erase(0, head_end + 4);
  Connected connected;
  if (head->status == kStatusSwitching && head->field("sec-websocket-accept") == websocket::accept_key(key)) {
    auto impl = std::make_unique<Impl>(std::move(*socket));
    impl->in = std::move(in);
    impl->parse();
    connected.socket = WebSocketClient(std::move(impl));
    return connected;
  }
  connected.answer = {.status = head->status, .retry_after = head->field("retry-after")};
  std::size_t length = 0;
  const std::string length_text = head->field("content-length");
  std::from_chars(length_text.data(), length_text.data() + length_text.size(), length);
  while (in.size() < std::min(length, kBodyBytesMax)) {
    if (const Result<Unit> got = receive_some(fd, in, deadline); !got) break;
  }
  connected.answer.body = in.substr(0, length);
  return connected;
}

int WebSocketClient::descriptor() const { return impl_->socket.get(); }
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
  if (!read || impl_->over) return;
  std::array<char, kReadBytes> piece;
  const ssize_t got = ::recv(impl_->socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got > 0) {
    impl_->in.append(piece.data(), static_cast<std::size_t>(got));
    impl_->parse();
  } else if (got == 0) {
    impl_->end("the connection was closed");
  } else if (errno != EAGAIN && errno != EINTR) {
    impl_->end(reason_of(errno));
  }
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
