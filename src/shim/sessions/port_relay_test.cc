#include "shim/sessions/port_relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>

namespace gpusched::shim {
namespace {

/// A listening socket on loopback, and its port.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  uint16_t port() const { return port_; }
  int accept_one() const { return accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC); }

 private:
  int socket_;
  uint16_t port_ = 0;
};

/// A process that relays between two pipes and the port.
struct Relay {
  pid_t pid = -1;
  int input = -1, output = -1, notes = -1;

  explicit Relay(uint16_t port) {
    std::array<int, 2> in{}, out{}, err{};
    for (std::array<int, 2>* const ends : {&in, &out, &err}) EXPECT_EQ(pipe2(ends->data(), O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
      signal(SIGPIPE, SIG_IGN);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      for (const int descriptor : {in[0], in[1], out[0], out[1], err[0], err[1]}) close(descriptor);
      const int joined = connect_to_port(port);
      _exit(joined < 0 ? 2 : relay_port(joined));
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    input = in[1];
    output = out[0];
    notes = err[0];
  }
  int exit_code() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

/// All that comes until the end.
std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> piece;
  ssize_t size = 0;
  while ((size = read(descriptor, piece.data(), piece.size())) > 0)
    text.append(piece.data(), static_cast<std::size_t>(size));
  return text;
}

TEST(PortRelay, AnEndOfInputIsPassedOnAndTheAnswerStillComes) {
  const Listener listener;
  const Relay relay(listener.port());
  const int peer = listener.accept_one();
  ASSERT_EQ(write(relay.input, "question", 8), 8);
  close(relay.input);
  EXPECT_EQ(read_all(peer), "question");  // Its end came through.
  ASSERT_EQ(write(peer, "answer", 6), 6);
  close(peer);
  EXPECT_EQ(read_all(relay.output), "answer");
  EXPECT_EQ(relay.exit_code(), 0);
  EXPECT_EQ(read_all(relay.notes).size(), 1u);
}

TEST(PortRelay, AServerThatSendsNoMoreIsStillReached) {
  const Listener listener;
  const Relay relay(listener.port());
  const int peer = listener.accept_one();
  ASSERT_EQ(write(peer, "hello", 5), 5);
  shutdown(peer, SHUT_WR);
  EXPECT_EQ(read_all(relay.output), "hello");
  ASSERT_EQ(write(relay.input, "late", 4), 4);
  close(relay.input);
  EXPECT_EQ(read_all(peer), "late");
  EXPECT_EQ(relay.exit_code(), 0);
  close(peer);
}

TEST(PortRelay, AConnectionThatBreaksIsNoGoodEnd) {
  const Listener listener;
  const Relay relay(listener.port());
  const int peer = listener.accept_one();
  const linger hard{.l_onoff = 1, .l_linger = 0};
  setsockopt(peer, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close(peer);
  EXPECT_EQ(relay.exit_code(), 1);
  EXPECT_EQ(read_all(relay.output) + read_all(relay.notes), "");  // No end that looks like a good one.
  close(relay.input);
}

TEST(PortRelay, APortWhereNobodyListensIsRefused) {
  uint16_t free_port = 0;
  {
    const Listener listener;
    free_port = listener.port();
  }
  errno = 0;
  EXPECT_EQ(connect_to_port(free_port), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

}  // namespace
}  // namespace gpusched::shim
