#include "shim/attempt/held_ports.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

const AttemptKey kHolder{JobId{7}, 1, 0};

/// Listens where it can; 0, or why it cannot.
int listen_error(int socket_file, uint32_t port) {
  const int yes = 1;
  setsockopt(socket_file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  place.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool good = bind(socket_file, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0 &&
                    listen(socket_file, 1) == 0;
  return good ? 0 : errno;
}

struct Stranger {
  explicit Stranger(uint32_t port)
      : file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), error(listen_error(file, port)) {}
  ~Stranger() { close(file); }
  const int file;
  const int error;
};

/// A few ports that nobody has now, for this test's process.
PortRange free_range() {
  const auto first = static_cast<uint32_t>(20'000 + getpid() % 10'000);
  return {.first = first, .last = first + 3};
}

struct Attempt {
  explicit Attempt(PortRange range, bool is_container = false)
      : wish(std::string(kPortWishVariable) + '=' +
             to_line({.ports = range, .probe = ReadyProbe{.path = "/up"}})),
        environment{other.data(), wish.data(), nullptr},
        problem(ports.take(0, environment, kHolder, is_container)) {
    if (const auto noted = parse_service_port(ports.note().substr(0, ports.note().find('\n')))) {
      port = noted->ports.first;
      EXPECT_EQ(noted->ports.last, port);
      EXPECT_EQ(noted->probe, ReadyProbe{.path = "/up"});
    }
  }
  std::string other = "HOME=/";
  std::string wish;
  std::vector<char*> environment;
  HeldPorts ports;
  std::string problem;
  uint32_t port = 0;
};

TEST(HeldPorts, AttemptsOfAMachineGetDifferentPorts) {
  const PortRange range = free_range();
  const Attempt one(range);
  const Attempt two(range);
  ASSERT_EQ(one.problem + two.problem, "");
  EXPECT_NE(one.port, two.port);
  for (const Attempt* const attempt : {&one, &two}) {
    EXPECT_GE(attempt->port, range.first);
    EXPECT_LE(attempt->port, range.last);
    EXPECT_EQ(attempt->environment[1], "PORT=" + std::to_string(attempt->port));
    EXPECT_STREQ(attempt->environment[0], "HOME=/");
  }
  const Attempt boxed(range, true);
  EXPECT_EQ(boxed.environment[1], "+PORT=" + std::to_string(boxed.port));
}

TEST(HeldPorts, APortIsItsOwnUntilTheCommandBindsItAndClaimedAfterThat) {
  const PortRange range = free_range();
  std::optional<Attempt> one(std::in_place, range);
  ASSERT_EQ(one->problem, "");
  const uint32_t port = one->port;
  EXPECT_EQ(Stranger(port).error, EADDRINUSE);
  EXPECT_EQ(one->ports.hand_over(false), -1);
  EXPECT_EQ(Stranger(port).error, 0);  // Its command does that.
  const PortRange only{.first = port, .last = port};
  const Attempt late(only);
  EXPECT_TRUE(late.problem.starts_with("none of the ports " + std::to_string(port))) << late.problem;
  one.reset();
  EXPECT_EQ(Attempt(only).problem, "");
}

TEST(HeldPorts, APortThatAnotherProgramListensAtIsPassedOver) {
  const PortRange range = free_range();
  const uint32_t first = Attempt(range).port;
  const Stranger stranger(first);
  ASSERT_EQ(stranger.error, 0);
  const Attempt other(range);
  EXPECT_EQ(other.problem, "");
  EXPECT_NE(other.port, first);
}

TEST(HeldPorts, AKilledProcessFreesItsPort) {
  const PortRange range = free_range();
  const PortRange only{.first = range.first, .last = range.first};
  const pid_t pid = fork();
  if (pid == 0) {
    const Attempt held(only);
    raise(held.problem.empty() ? SIGKILL : SIGABRT);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(Attempt(only).problem, "");
}

TEST(HeldPorts, WithoutAWishThereIsNone) {
  HeldPorts ports;
  std::string home = "HOME=/";
  std::vector<char*> environment{home.data(), nullptr};
  EXPECT_EQ(ports.take(0, environment, kHolder, false), "");
  EXPECT_EQ(ports.note(), "");
  EXPECT_EQ(ports.hand_over(true), -1);
  std::string bad = std::string(kPortWishVariable) + "=some";
  environment = {bad.data(), nullptr};
  EXPECT_NE(ports.take(0, environment, kHolder, false), "");
}

}  // namespace
}  // namespace gpusched::shim
