// The server that starts attempts, by the packets that it gets: gpu-shim is the program that ships.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "node/testing/attempt_key.h"
#include "node/testing/testing.h"
#include "shim/protocol.h"
#include "shim/server.h"

namespace gpusched {
namespace {

constexpr std::array<char, 3> kOtherVersions = {0x01, 0x11,
                                                0x71};  ///< Without one, an earlier and a later one.

class ShimServer : public ::testing::Test {
 protected:
  ShimServer() {
    std::filesystem::create_directory(folder_.path() + "/attempts");
    std::array<int, 2> control{};
    std::array<int, 2> events{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control.data()), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events.data()), 0);
    control_ = control[0];
    events_ = events[0];
    pid_ = fork();
    if (pid_ == 0) {
      const int high_control = fcntl(control[1], F_DUPFD, 100);
      const int high_events = fcntl(events[1], F_DUPFD, 100);
      dup2(high_control, shim::kControlDescriptor);
      dup2(high_events, shim::kEventDescriptor);
      execl(GPUSCHED_SHIM_PATH, "gpu-shim", shim::kServerFlag, "test", folder_.path().c_str(),
            "--------------------------------", nullptr);
      _exit(1);
    }
    close(control[1]);
    close(events[1]);
  }
  ~ShimServer() override {
    close(control_);
    close(events_);
    waitpid(pid_, nullptr, 0);
  }

  static std::string start_packet(char kind) {
    std::string packet =
        shim::encode(shim::StartRequest{.key = kKey, .grace = {}, .arguments = {"/bin/true"}});
    packet[0] = kind;
    return packet;
  }
  void send_packet(const std::string& packet) const {
    ASSERT_EQ(send(control_, packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
  }
  /// As a start that is larger than a packet travels.
  void send_in_memory(char kind, const std::string& packet) const {
    const int memory = memfd_create("start", MFD_CLOEXEC);
    ASSERT_EQ(write(memory, packet.data(), packet.size()), static_cast<ssize_t>(packet.size()));
    iovec part{.iov_base = &kind, .iov_len = 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> extra{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = extra.data();
    header.msg_controllen = extra.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &memory, sizeof memory);
    ASSERT_EQ(sendmsg(control_, &header, 0), 1);
    close(memory);
  }
  /// Nothing: none came within ten seconds.
  std::optional<shim::Event> next_event() const {
    pollfd source{.fd = events_, .events = POLLIN, .revents = 0};
    if (poll(&source, 1, 10'000) != 1) return std::nullopt;
    std::array<char, 4096> buffer{};
    const ssize_t size = recv(events_, buffer.data(), buffer.size(), 0);
    if (size <= 0) return std::nullopt;
    return shim::decode_event({buffer.data(), static_cast<std::size_t>(size)});
  }
  void expect_refusal() const {
    const std::optional<shim::Event> event = next_event();
    ASSERT_TRUE(event.has_value()) << "no answer";
    EXPECT_EQ(event->kind, shim::EventKind::kEnded);
    EXPECT_EQ(event->key, kKey);
    EXPECT_EQ(event->outcome.cause, shim::Cause::kNodeFault);
    EXPECT_NE(event->outcome.detail.find("different versions; restart gpu-agent"), std::string::npos);
  }

  TemporaryFolder folder_;
  pid_t pid_ = -1;
  int control_ = -1;
  int events_ = -1;
};

TEST_F(ShimServer, AnotherVersionsStartIsRefusedAndNeverRun) {
  for (const char kind : kOtherVersions) {
    send_packet(start_packet(kind));
    expect_refusal();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() + "/attempts"));
}

TEST_F(ShimServer, AnotherVersionsLargeStartIsRefusedToo) {
  for (const char kind : kOtherVersions) {
    send_in_memory(static_cast<char>(kind + 2), start_packet(kind));
    expect_refusal();
  }
}

TEST_F(ShimServer, ItsOwnVersionStartsEitherWay) {
  const char kind = static_cast<char>(shim::RequestKind::kStart);
  send_in_memory(static_cast<char>(shim::RequestKind::kStartInMemory), start_packet(kind));
  const std::optional<shim::Event> started = next_event();
  ASSERT_TRUE(started.has_value());
  EXPECT_EQ(started->kind, shim::EventKind::kStarted);
  const std::optional<shim::Event> ended = next_event();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->outcome.cause, shim::Cause::kExited);
}

}  // namespace
}  // namespace gpusched
