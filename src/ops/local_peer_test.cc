#include "ops/local_peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace gpusched::ops {
namespace {

TEST(LocalPeer, LoopbackIsKnownByNumberAndOneName) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"128.0.0.1", "0.0.0.0", "10.0.0.1", "::2", "gpu1", "localhost.example"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(LocalPeer, ListenersAreFoundWithTheirUsers) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 "
      "0 0 10 0\n"
      "   1: 00000000:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 "
      "0 0 10 0\n"
      "   2: 0A00000A:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 3 1 0 100 "
      "0 0 10 0\n"
      "   3: 0100007F:2382 0100007F:1111 01 00000000:00000000 00:00000000 00000000  1002        0 4 1 0 100 "
      "0 0 10 0\n"
      "   4: 0100007F:2383 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 5 1 0 100 "
      "0 0 10 0\n"
      "   5: 00000000000000000000000001000000:2382 00000000000000000000000000000000:0000 0A "
      "00000000:00000000 "
      "00:00000000 00000000  1004        0 6 1 0 100 0 0 10 0\n";
  // The socket of exactly this address gets the connection.
  EXPECT_EQ(listening_users(table, "127.0.0.1", 0x2382), (std::vector<uid_t>{1000}));
  EXPECT_EQ(listening_users(table, "127.0.0.2", 0x2382), (std::vector<uid_t>{0}));
  EXPECT_EQ(listening_users(table, "::1", 0x2382), (std::vector<uid_t>{1004}));
  EXPECT_EQ(listening_users(table, "localhost", 0x2382), (std::vector<uid_t>{1000, 1004}));
  EXPECT_EQ(listening_users(table, "127.0.0.1", 0x2383), (std::vector<uid_t>{1003}));
  EXPECT_TRUE(listening_users(table, "127.0.0.1", 1).empty());
}

std::string tables() {
  std::string text;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(path);
    text.append(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return text;
}

/// A socket that listens at the address, and its port; -1: this machine has no such address.
std::pair<int, uint16_t> listening(int family, const char* host) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  auto* four = reinterpret_cast<sockaddr_in*>(&address);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address);
  const socklen_t size = family == AF_INET ? sizeof *four : sizeof *six;
  inet_pton(family, host,
            family == AF_INET ? static_cast<void*>(&four->sin_addr) : static_cast<void*>(&six->sin6_addr));
  socklen_t told = sizeof address;
  const bool up = socket >= 0 && bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                  listen(socket, 1) == 0 &&
                  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &told) == 0;
  if (!up) return {-1, 0};
  return {socket, ntohs(family == AF_INET ? four->sin_port : six->sin6_port)};
}

TEST(LocalPeer, TheKernelSaysWhatItsTablesSay) {
  for (const auto& [family, host] : {std::pair{AF_INET, "127.0.0.1"}, std::pair{AF_INET, "0.0.0.0"},
                                     std::pair{AF_INET6, "::1"}, std::pair{AF_INET6, "::"}}) {
    const auto [socket, port] = listening(family, host);
    if (socket < 0) continue;
    for (const char* asked : {"127.0.0.1", "127.0.0.2", "::1", "localhost"})
      EXPECT_EQ(listening_users(asked, port), listening_users(tables(), asked, port)) << host << ' ' << asked;
    const char* const own = family == AF_INET ? "127.0.0.1" : "::1";
    EXPECT_EQ(listening_users(own, port), (std::vector<uid_t>{getuid()})) << host;
    close(socket);
    EXPECT_TRUE(listening_users(own, port).empty()) << host;
  }
}

TEST(IdFloor, IsReadFromLoginDefs) {
  std::string folder = ::testing::TempDir() + "gpusched_peer_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/login.defs";
  std::ofstream(path) << "# UID_MIN 5\nUID_MIN\t\t  500\nGID_MIN abc\nUMASK 022\n";
  EXPECT_EQ(read_id_floor(path).uid, 500u);
  EXPECT_EQ(read_id_floor(path).gid, 1'000u);
  EXPECT_EQ(read_id_floor(folder + "/absent").uid, 1'000u);
  std::filesystem::remove_all(folder);
}

/// A scheduler's folder, and a socket that listens as it would.
class LocalToken : public ::testing::Test {
 protected:
  LocalToken() {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    write("token", "0123456789abcdef\n", 0600);
    write_ports(port_, getpid());
  }
  ~LocalToken() override {
    close(socket_);
    std::filesystem::remove_all(folder_);
  }
  void write(const std::string& name, const std::string& text, mode_t mode) {
    std::ofstream(folder_ + "/" + name) << text;
    chmod((folder_ + "/" + name).c_str(), mode);
  }
  void write_ports(int port, int pid) {
    write("ports.json",
          "{\"http\":1,\"grpc\":" + std::to_string(port) + ",\"pid\":" + std::to_string(pid) + "}\n", 0644);
  }
  Result<std::string> read(const std::string& name = "/token") {
    return read_local_token(folder_ + name, "127.0.0.1", port_, "grpc");
  }

  std::string folder_ = ::testing::TempDir() + "gpusched_token_XXXXXX";
  int socket_ = -1;
  uint16_t port_ = 0;
};

TEST_F(LocalToken, IsReadWhereItsSchedulerListens) {
  const Result<std::string> token = read();
  ASSERT_TRUE(token.ok()) << token.error().message;
  EXPECT_EQ(*token, "0123456789abcdef");
  EXPECT_FALSE(read_local_token(folder_ + "/token", "127.0.0.1", 1, "grpc").ok());
  EXPECT_FALSE(read_local_token(folder_ + "/token", "10.0.0.1", port_, "grpc").ok());
}

TEST_F(LocalToken, NoOtherFileIsRead) {
  write("secret", "0123456789abcdef\n", 0600);
  EXPECT_FALSE(read("/secret").ok());
  write_ports(port_ == 1 ? 2 : 1, getpid());
  EXPECT_FALSE(read().ok());
  write_ports(port_, 0);
  EXPECT_FALSE(read().ok());
  std::filesystem::remove(folder_ + "/ports.json");
  EXPECT_FALSE(read().ok());
}

TEST_F(LocalToken, IsNotReadThroughALinkOrWhenOthersCan) {
  write("token", "0123456789abcdef\n", 0640);
  EXPECT_FALSE(read().ok());
  write("elsewhere", "0123456789abcdef\n", 0600);
  std::filesystem::remove(folder_ + "/token");
  std::filesystem::create_symlink(folder_ + "/elsewhere", folder_ + "/token");
  EXPECT_FALSE(read().ok());
}

TEST_F(LocalToken, OfAnotherUserThanTheListenerIsNotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: gives a file to another user";
  ASSERT_EQ(chown((folder_ + "/token").c_str(), 65'534, 65'534), 0);
  EXPECT_FALSE(read().ok());
}

}  // namespace
}  // namespace gpusched::ops
