#include "cli/verbs/sessions/port_listeners.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

constexpr int kListenQueue = 64;

struct ListenAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

std::optional<ListenAddress> listen_address(const std::string& text, uint16_t port) {
  ListenAddress address;
  auto* const four = reinterpret_cast<sockaddr_in*>(&address.bytes);
  const std::string literal = text == "localhost" ? "127.0.0.1" : text;
  if (::inet_pton(AF_INET, literal.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    address.size = sizeof *four;
    return address;
  }
  auto* const six = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  if (::inet_pton(AF_INET6, literal.c_str(), &six->sin6_addr) != 1) return std::nullopt;
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(port);
  address.size = sizeof *six;
  return address;
}

/// "127.0.0.1:8888", "[::1]:8888".
std::string place_of(const ListenAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.bytes.ss_family == AF_INET) {
    const auto* const four = reinterpret_cast<const sockaddr_in*>(&address.bytes);
    ::inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(four->sin_port));
  }
  const auto* const six = reinterpret_cast<const sockaddr_in6*>(&address.bytes);
  ::inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
  return "[" + std::string(text) + "]:" + std::to_string(ntohs(six->sin6_port));
}

uint16_t port_of(const ListenAddress& address) {
  if (address.bytes.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address.bytes)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.bytes)->sin6_port);
}

}  // namespace

PortListeners::~PortListeners() {
  for (const int socket : sockets_) ::close(socket);
}

Result<Unit> PortListeners::add(const std::string& address, uint16_t port) {
  std::optional<ListenAddress> where = listen_address(address, port);
  if (!where) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "'" + printable(address) +
                            "' is no address of this machine; give one as in 127.0.0.1 or ::1"};
  }
  const int made = ::socket(where->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int one = 1;
  auto* const bytes = reinterpret_cast<sockaddr*>(&where->bytes);
  const bool listens = made >= 0 && ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                       ::bind(made, bytes, where->size) == 0 && ::listen(made, kListenQueue) == 0 &&
                       ::getsockname(made, bytes, &where->size) == 0;
  if (!listens) {
    const int error = errno;
    if (made >= 0) ::close(made);
    std::string advice;
    if (error == EADDRINUSE) advice = "; choose another port, or :PORT for a free one";
    if (error == EADDRNOTAVAIL) advice = "; it must be an address of this machine";
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "cannot listen on " + place_of(*where) + ": " + std::strerror(error) + advice};
  }
  sockets_.push_back(made);
  ports_.push_back(port_of(*where));
  places_.push_back(place_of(*where));
  return Unit{};
}

}  // namespace gpusched::cli
