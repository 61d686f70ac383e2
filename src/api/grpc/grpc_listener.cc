#include "api/grpc/grpc_listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "api/contract/token.h"
#include "api/limits/address_group.h"

namespace gpusched::api {
namespace {

constexpr int kConnectionsWaitingMax = 4'096;
constexpr int kNoFilesPauseMs = 100;  ///< While the process has no file left for another connection.

Time monotonic() {
  return Time{} + Duration{std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::steady_clock::now().time_since_epoch())
                               .count()};
}

struct FreeAddresses {
  void operator()(addrinfo* found) const { ::freeaddrinfo(found); }
};
using Endpoint = std::unique_ptr<addrinfo, FreeAddresses>;

/// Null: it is no numeric address.
Endpoint endpoint_of(std::string address, uint16_t port) {
  if (address == "localhost") address = "127.0.0.1";
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  return Endpoint(failed == 0 ? found : nullptr);
}

/// A socket that listens there; else -1 with `errno`.
int listen_at(const addrinfo& where) {
  const int listener = ::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return -1;
  const int yes = 1, no = 0;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // Accepted sockets inherit it.
  ::setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (where.ai_family == AF_INET6) ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(listener, where.ai_addr, where.ai_addrlen) == 0 &&
      ::listen(listener, kConnectionsWaitingMax) == 0)
    return listener;
  const int error = errno;
  ::close(listener);
  errno = error;
  return -1;
}

uint16_t port_of(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool is_six = address.ss_family == AF_INET6;
  const void* const bytes =
      is_six ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
             : static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  ::inet_ntop(address.ss_family, bytes, text, sizeof text);
  return text;
}

}  // namespace

Result<uint16_t> GrpcListener::listen(const std::string& address, uint16_t port, const char* setting) {
  const Endpoint where = endpoint_of(address, port);
  if (where == nullptr)
    return Error{ErrorCode::kInvalidArgument, address + " is not a numeric address", setting};
  int listener = -1;
  // Every address of IPv4 is every one of IPv6 as well, where there is that.
  if (address == "0.0.0.0") listener = listen_at(*endpoint_of("::", port));
  if (listener < 0 && !(address == "0.0.0.0" && errno == EADDRINUSE)) listener = listen_at(*where);
  if (listener < 0) {
    const int error = errno;
    const bool is_bare_six = address.find(':') != std::string::npos && !address.starts_with('[');
    return Error{error == EADDRINUSE ? ErrorCode::kLocked : ErrorCode::kIo,
                 "cannot listen on " + (is_bare_six ? "[" + address + "]" : address) + ":" +
                     std::to_string(port) + ": " + std::strerror(error),
                 setting};
  }
  listeners_.push_back(listener);
  return port_of(listener);
}

Result<Unit> GrpcListener::start(GrpcListenerOptions options, Take take) {
  options_ = options;
  take_ = std::move(take);
  stop_event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_event_ < 0)
    return Error{.code = ErrorCode::kIo, .message = std::string("eventfd: ") + std::strerror(errno)};
  OpenSockets::Limits limits{.of_party_max = options.address_connections_max,
                             .all_max = options.connections_max};
  if (limits.all_max != 0)
    limits.of_party_max = std::min(limits.of_party_max, std::max<std::size_t>(limits.all_max / 2, 1));
  thread_ = std::thread([this, limits] {
    OpenSockets open(limits);
    run(open);
  });
  return Unit{};
}

void GrpcListener::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = ::write(stop_event_, &one, sizeof one);
    thread_.join();
  }
  if (stop_event_ >= 0) ::close(std::exchange(stop_event_, -1));
  for (const int listener : listeners_) ::close(listener);
  listeners_.clear();
}

void GrpcListener::run(OpenSockets& open) {
  pthread_setname_np(pthread_self(), "api-grpc-ports");
  std::vector<pollfd> watched{{.fd = stop_event_, .events = POLLIN, .revents = 0}};
  for (const int listener : listeners_) watched.push_back({.fd = listener, .events = POLLIN, .revents = 0});
  while (true) {
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return;
    if (watched[0].revents != 0) return;
    bool is_out_of_files = false;
    for (std::size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents != 0 && !accept_all(open, watched[i].fd)) is_out_of_files = true;
    }
    if (is_out_of_files) ::poll(watched.data(), 1, kNoFilesPauseMs);
  }
}

/// False: there is no room in the process for those that wait.
bool GrpcListener::accept_all(OpenSockets& open, int listener) {
  while (true) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const int connection =
        ::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    const std::string text = text_of(address);
    std::string party = address_group(text);
    if (!options_.bounds_loopback && (is_loopback(text) || is_loopback(party))) party.clear();
    if (!open.has_room(party, monotonic())) {
      turned_away_.fetch_add(1, std::memory_order_relaxed);
      ::close(connection);
      continue;
    }
    open.add(party, connection);
    take_(listener, connection);
  }
}

}  // namespace gpusched::api
