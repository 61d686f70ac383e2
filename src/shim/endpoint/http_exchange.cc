#include "shim/endpoint/http_exchange.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

namespace gpusched::shim {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;  ///< 0: it is none.
};

Address address_of(const WebhookUrl& url) {
  Address address;
  uint16_t port = 0;
  std::from_chars(url.port.data(), url.port.data() + url.port.size(), port);
  if (url.host.starts_with('[')) {
    sockaddr_in6 place{};
    place.sin6_family = AF_INET6;
    place.sin6_port = htons(port);
    const std::string host = url.host.substr(1, url.host.size() - 2);
    if (inet_pton(AF_INET6, host.c_str(), &place.sin6_addr) != 1) return address;
    std::memcpy(&address.bytes, &place, sizeof place);
    address.size = sizeof place;
  } else {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    const std::string host = url.host == "localhost" ? "127.0.0.1" : url.host;
    if (inet_pton(AF_INET, host.c_str(), &place.sin_addr) != 1) return address;
    std::memcpy(&address.bytes, &place, sizeof place);
    address.size = sizeof place;
  }
  return address;
}

std::string words_of(int error) {
  const char* words = strerrordesc_np(error);
  return words == nullptr ? "unknown error" : words;
}

}  // namespace

HttpExchange::HttpExchange(const WebhookUrl& url, std::string request, std::size_t body_bytes_max,
                           Time deadline)
    : request_(std::move(request)), answer_(body_bytes_max), deadline_(deadline) {
  connect_to(url);
}

HttpExchange::~HttpExchange() {
  if (socket_ >= 0) close(socket_);
}

void HttpExchange::connect_to(const WebhookUrl& url) {
  const Address address = address_of(url);
  if (address.size == 0) return finish(End::kNotReached, "cannot connect: " + url.host + " is no IP address");
  socket_ = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return finish(End::kNotReached, "cannot connect: " + words_of(errno));
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0) {
    connected_ = true;
  } else if (errno != EINPROGRESS && errno != EINTR) {
    finish(End::kNotReached, "cannot connect: " + words_of(errno));
  }
}

short HttpExchange::events() const {
  if (!connected_) return POLLOUT;
  return static_cast<short>(written_ < request_.size() ? POLLIN | POLLOUT : POLLIN);
}

void HttpExchange::advance(Time now) {
  if (end_ != End::kNone) return;
  if (!connected_) {
    pollfd source{.fd = socket_, .events = POLLOUT, .revents = 0};
    if (poll(&source, 1, 0) > 0) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return finish(End::kNotReached, "cannot connect: " + words_of(error));
      connected_ = true;
    }
  }
  if (connected_) {
    write_request();
    read_answer();
  }
  if (end_ == End::kNone && now >= deadline_)
    finish(End::kLate, connected_ ? "it did not answer" : "it did not accept a connection");
}

/// A server that takes no more may have answered before: what it said counts.
void HttpExchange::write_request() {
  while (written_ < request_.size()) {
    const ssize_t size =
        send(socket_, request_.data() + written_, request_.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    written_ = size < 0 ? request_.size() : written_ + static_cast<std::size_t>(size);
  }
}

void HttpExchange::read_answer() {
  std::array<char, kPieceBytes> buffer;
  HttpAnswer::State state = HttpAnswer::State::kUnderWay;
  while (state == HttpAnswer::State::kUnderWay) {
    const ssize_t size = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) {
      return finish(End::kBroken, "the connection broke before it answered: " + words_of(errno));
    }
    state = size == 0 ? answer_.end() : answer_.add({buffer.data(), static_cast<std::size_t>(size)});
  }
  switch (state) {
    case HttpAnswer::State::kUnderWay:
      return;
    case HttpAnswer::State::kWhole:
      return finish(End::kAnswered, {});
    case HttpAnswer::State::kCutShort:
      return finish(End::kBroken, answer_.is_empty() ? "it closed the connection before it answered"
                                                     : "it closed the connection within its answer");
    case HttpAnswer::State::kTooLarge:
      return finish(End::kNoAnswer, "the body of its answer is too large");
    case HttpAnswer::State::kMalformed:
      return finish(End::kNoAnswer, "what it said is no HTTP");
  }
}

void HttpExchange::finish(End end, std::string problem) {
  end_ = end;
  problem_ = std::move(problem);
}

}  // namespace gpusched::shim
