#include "client/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/net/cancel_scope.h"
#include "sign/tls_trust.h"

namespace gpusched::client_internal {
namespace {

using sign::TlsStep;

Error unavailable(std::string why) { return {.code = ErrorCode::kUnavailable, .message = std::move(why)}; }

std::string reason_of(int error) {
  if (error == ECONNREFUSED) return "connection refused";
  if (error == ECONNRESET || error == EPIPE) return "the connection broke";
  if (error == ETIMEDOUT) return "no answer in time";
  std::string text = std::strerror(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

/// Waits until `what` (POLLIN or POLLOUT) is possible; false when the deadline came first, or the wait was
/// cancelled.
bool wait_for(int socket, short what, Connection::Clock::time_point deadline) {
  while (!CancelScope::is_cancelled()) {
    int left_ms = -1;
    if (deadline != Connection::Clock::time_point::max()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Connection::Clock::now());
      left_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
    }
    const bool in_parts = CancelScope::exists() && (left_ms < 0 || left_ms > kCancelLookMs);
    if (in_parts) left_ms = kCancelLookMs;
    pollfd source{.fd = socket, .events = what, .revents = 0};
    const int ready = ::poll(&source, 1, left_ms);
    if (ready > 0) return true;
    if (ready == 0 ? !in_parts : errno != EINTR) return false;
  }
  return false;
}

struct FreeAddresses {
  void operator()(addrinfo* found) const { ::freeaddrinfo(found); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  return Addresses(::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) == 0 ? found : nullptr);
}

/// The same, no later than the deadline and unless it is cancelled. Nothing ends a look-up before its own
/// time: a thread that has nothing but the names is left behind with it.
Addresses resolve_in_time(const std::string& host, const std::string& port,
                          Connection::Clock::time_point deadline) {
  struct LookUp {
    std::mutex mutex;
    std::condition_variable ended;
    bool is_over = false;
    Addresses found;
  };
  const auto look_up = std::make_shared<LookUp>();
  std::thread([look_up, host, port] {
    Addresses found = resolve(host, port);
    const std::lock_guard lock(look_up->mutex);
    look_up->found = std::move(found);
    look_up->is_over = true;
    look_up->ended.notify_all();
  }).detach();
  std::unique_lock lock(look_up->mutex);
  while (!look_up->is_over && !CancelScope::is_cancelled() && Connection::Clock::now() < deadline)
    look_up->ended.wait_for(lock, std::chrono::milliseconds(kCancelLookMs));
  return std::move(look_up->found);
}

/// A connected, non-blocking socket to one of the addresses; else -1 with the last reason.
int connect_any(const addrinfo* found, Connection::Clock::time_point deadline, int& error) {
  error = ECONNREFUSED;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int socket = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) continue;
    error = ::connect(socket, entry->ai_addr, entry->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (wait_for(socket, POLLOUT, deadline)) {
        ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
      } else {
        error = ETIMEDOUT;
      }
    }
    if (error == 0) return socket;
    ::close(socket);
  }
  return -1;
}

/// A connected, non-blocking Unix socket; else -1 with the reason.
int connect_locally(const std::string& path, Connection::Clock::time_point deadline, int& error) {
  constexpr int kPauseMs = 5;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  CHECK(path.size() < sizeof address.sun_path);  // As parse_http_url makes sure.
  std::memcpy(address.sun_path, path.data(), path.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  error = socket < 0 ? errno : 0;
  while (socket >= 0) {
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
    error = errno;
    // Its queue is full, which no poll tells the end of.
    if (error != EAGAIN || Connection::Clock::now() >= deadline) break;
    ::poll(nullptr, 0, kPauseMs);
  }
  if (socket >= 0) ::close(socket);
  if (error == EAGAIN) error = ETIMEDOUT;
  return -1;
}

/// The bytes of an IP address; none of any other.
std::span<const uint8_t> bytes_of(const addrinfo& entry) {
  if (entry.ai_family == AF_INET) {
    const auto& address = *reinterpret_cast<const sockaddr_in*>(entry.ai_addr);
    return {reinterpret_cast<const uint8_t*>(&address.sin_addr), sizeof address.sin_addr};
  }
  if (entry.ai_family != AF_INET6) return {};
  const auto& address = *reinterpret_cast<const sockaddr_in6*>(entry.ai_addr);
  return {address.sin6_addr.s6_addr, sizeof address.sin6_addr.s6_addr};
}

bool are_allowed(const addrinfo* found, const HttpClientOptions& options) {
  if (options.address_allowed == nullptr) return true;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (!options.address_allowed(bytes_of(*entry))) return false;
  }
  return true;
}

Result<std::shared_ptr<const sign::TlsTrust>> trust_of(const HttpClientOptions& options) {
  if (!options.server_certificate.empty()) return sign::TlsTrust::of_server(options.server_certificate);
  if (!options.ca_file.empty()) return sign::TlsTrust::of_file(options.ca_file);
  return sign::TlsTrust::of_system();
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const HttpEndpoint& endpoint,
                                                     const HttpClientOptions& options) {
  const auto deadline = Clock::now() + std::chrono::nanoseconds(options.connect_timeout.ns);
  int error = 0;
  if (!endpoint.unix_socket.empty()) {
    const int local = connect_locally(endpoint.unix_socket, deadline, error);
    if (local < 0) return unavailable(reason_of(error));
    std::unique_ptr<Connection> connection(new Connection(local));
    connection->before_send_ = options.before_send;
    return connection;
  }
  const Addresses found = CancelScope::exists() ? resolve_in_time(endpoint.host, endpoint.port, deadline)
                                                : resolve(endpoint.host, endpoint.port);
  if (found == nullptr) return unavailable("the host name could not be resolved");
  // The addresses that were looked at are those that are connected to: nobody resolves the name again.
  const bool allowed = are_allowed(found.get(), options);
  const int socket = allowed ? connect_any(found.get(), deadline, error) : -1;
  if (!allowed)
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "the host has an address that is not of the public Internet"};
  if (socket < 0) return unavailable(reason_of(error));
  std::unique_ptr<Connection> connection(new Connection(socket));
  connection->before_send_ = options.before_send;
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A stream may be silent for hours: this is how a peer that vanished is noticed.
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  if (endpoint.tls) {
    connection->deadline_ = deadline;
    if (const Result<Unit> shaken = connection->shake_hands(endpoint, options); !shaken)
      return shaken.error();
    connection->deadline_ = Clock::time_point::max();
  }
  return connection;
}

Connection::~Connection() {
  if (tls_ != nullptr) tls_->end_sending();
  ::close(socket_);
}

Result<Unit> Connection::shake_hands(const HttpEndpoint& endpoint, const HttpClientOptions& options) {
  const Result<std::shared_ptr<const sign::TlsTrust>> trust = trust_of(options);
  if (!trust) return trust.error();
  tls_ = (*trust)->connect(socket_, endpoint.host);
  while (true) {
    const TlsStep step = tls_->handshake();
    if (step == TlsStep::kDone) return Unit{};
    if (step != TlsStep::kWantRead && step != TlsStep::kWantWrite)
      return sign::handshake_error(*tls_, endpoint.host);
    if (!wait_for(socket_, step == TlsStep::kWantWrite ? POLLOUT : POLLIN, deadline_))
      return unavailable("the server did not take part in a TLS handshake in time");
  }
}

bool Connection::buffered() const { return tls_ != nullptr && SSL_has_pending(tls_->native()) == 1; }

Connection::Step Connection::tls_step(TlsStep step) {
  switch (step) {
    case TlsStep::kDone:
      return Step::kDone;
    case TlsStep::kWantRead:
    case TlsStep::kWantWrite:  // Without second handshakes each direction waits for itself alone.
      return Step::kAgain;
    case TlsStep::kEnd:
      return Step::kEnd;
    case TlsStep::kPlainHttp:
    case TlsStep::kBroken:
      break;
  }
  errno_ = ECONNRESET;
  why_ = tls_->error();
  return Step::kBroken;
}

Connection::Step Connection::read(char* to, std::size_t size, std::size_t& count) {
  if (tls_ != nullptr) return tls_step(tls_->read(to, size, count));
  const ssize_t got = ::recv(socket_, to, size, 0);
  count = got > 0 ? static_cast<std::size_t>(got) : 0;
  if (got > 0) return Step::kDone;
  if (got == 0) return Step::kEnd;
  if (errno == EAGAIN || errno == EINTR) return Step::kAgain;
  errno_ = errno;
  why_ = reason_of(errno_);
  return Step::kBroken;
}

Connection::Step Connection::write(const char* from, std::size_t size, std::size_t& count) {
  if (tls_ != nullptr) return tls_step(tls_->write(from, size, count));
  const ssize_t sent = ::send(socket_, from, size, MSG_NOSIGNAL);
  count = sent > 0 ? static_cast<std::size_t>(sent) : 0;
  if (sent > 0) return Step::kDone;
  if (errno == EAGAIN || errno == EINTR) return Step::kAgain;
  errno_ = errno;
  why_ = reason_of(errno_);
  return Step::kBroken;
}

/// Waits after kAgain; else tells in `error` how it ended.
bool Connection::go_on(Step step, bool to_write, error_code& error) {
  error = {};
  switch (step) {
    case Step::kDone:
      return false;
    case Step::kAgain:
      if (wait_for(socket_, to_write ? POLLOUT : POLLIN, deadline_)) return true;
      error = boost::asio::error::timed_out;
      return false;
    case Step::kEnd:
      error = boost::asio::error::eof;
      return false;
    case Step::kBroken:
      error = error_code(errno_, boost::system::system_category());
      return false;
  }
  return false;
}

std::size_t Connection::wait_read(char* to, std::size_t size, error_code& error) {
  std::size_t count = 0;
  while (go_on(read(to, size, count), false, error)) {
  }
  return error ? 0 : count;
}

std::size_t Connection::wait_write(const std::string& bytes, error_code& error) {
  std::size_t count = 0;
  error = {};
  if (bytes.empty()) return 0;
  if (!tell(bytes)) {
    error = boost::asio::error::operation_aborted;
    return 0;
  }
  while (go_on(write(bytes.data(), bytes.size(), count), true, error)) {
  }
  if (error) return 0;
  told_ -= std::min(told_, count);
  return count;
}

/// Bytes that were sent in part come again with the rest: only bytes that were not told yet are.
bool Connection::tell(const std::string& bytes) {
  if (before_send_ == nullptr || bytes.size() <= told_) return true;
  const std::string_view news = std::string_view(bytes).substr(told_);
  told_ = bytes.size();
  return before_send_(news);
}

}  // namespace gpusched::client_internal

namespace gpusched {

Result<Unit> check_ca_file(const HttpClientOptions& options) {
  const auto is_https = [](const std::string& url) { return url.starts_with("https://"); };
  const bool needed = is_https(options.url) || std::ranges::any_of(options.other_urls, is_https);
  if (options.ca_file.empty() || !needed) return Unit{};
  const auto trust = sign::TlsTrust::of_file(options.ca_file);
  return trust ? Result<Unit>(Unit{}) : Result<Unit>(trust.error());
}

}  // namespace gpusched
