#include "shim/sessions/port_relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace gpusched::shim {
namespace {

constexpr std::size_t kPieceBytes = 32 * 1024;

template <typename Address>
int connect_to(const Address& address, int family) {
  const int found = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (found < 0) return -1;
  while (connect(found, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    close(found);
    errno = error;
    return -1;
  }
  const int one = 1;  // A key that is pressed shall not wait for the next one.
  setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return found;
}

/// One direction: a piece that was read and is not written yet, and whether more will come.
struct Way {
  int from, to;
  std::array<char, kPieceBytes> piece = {};
  std::size_t begin = 0, end = 0;
  bool over = false;  ///< Its end was passed on.

  bool holds() const { return begin < end; }
  /// The descriptor to wait for, and how; -1: none.
  pollfd wanted() const {
    if (over) return {.fd = -1, .events = 0, .revents = 0};
    return holds() ? pollfd{.fd = to, .events = POLLOUT, .revents = 0}
                   : pollfd{.fd = from, .events = POLLIN, .revents = 0};
  }
};

enum class Step : uint8_t { kGoOn, kEnded, kBroken };

/// Reads or writes once, after poll said that it can be done.
Step step(Way& way) {
  if (way.holds()) {
    const ssize_t size = write(way.to, way.piece.data() + way.begin, way.end - way.begin);
    if (size < 0) return errno == EINTR || errno == EAGAIN ? Step::kGoOn : Step::kBroken;
    way.begin += static_cast<std::size_t>(size);
    return Step::kGoOn;
  }
  const ssize_t size = read(way.from, way.piece.data(), way.piece.size());
  if (size < 0) return errno == EINTR || errno == EAGAIN ? Step::kGoOn : Step::kBroken;
  way.begin = 0;
  way.end = static_cast<std::size_t>(size);
  return size == 0 ? Step::kEnded : Step::kGoOn;
}

}  // namespace

int connect_to_port(uint16_t port) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int found = connect_to(four, AF_INET);
  if (found >= 0 || errno != ECONNREFUSED) return found;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  six.sin6_addr = in6addr_loopback;
  const int other = connect_to(six, AF_INET6);
  if (other < 0) errno = ECONNREFUSED;  // Whatever a machine without IPv6 says.
  return other;
}

int relay_port(int socket) {
  // A write may take less than a piece, and must not wait: the other way goes on meanwhile.
  for (const int descriptor : {socket, STDOUT_FILENO})
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  static Way in{.from = STDIN_FILENO, .to = socket};
  static Way out{.from = socket, .to = STDOUT_FILENO};
  while (!in.over || !out.over) {
    std::array<pollfd, 2> sources = {in.wanted(), out.wanted()};
    if (poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) return 1;
    if (sources[0].revents != 0) {
      const Step done = step(in);
      in.over = done != Step::kGoOn;
      if (done == Step::kEnded) shutdown(socket, SHUT_WR);
      // A server that takes no more may have answered: what it sent still comes.
      if (done == Step::kBroken) close(STDIN_FILENO);
    }
    if (sources[1].revents != 0) {
      const Step done = step(out);
      if (done == Step::kBroken) return 1;
      if (done == Step::kEnded) {
        out.over = true;
        const char ended_well = '\n';
        if (write(STDERR_FILENO, &ended_well, 1) != 1) return 1;
        close(STDOUT_FILENO);
      }
    }
  }
  return 0;
}

}  // namespace gpusched::shim
