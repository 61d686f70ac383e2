#include "ops/port_holder.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpusched {
namespace {

namespace fs = std::filesystem;

/// A listening socket of this process.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    socklen_t size = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { ::close(socket_); }
  uint16_t port() const { return port_; }

 private:
  int socket_;
  uint16_t port_ = 0;
};

TEST(PortHolder, OfARealPortIsTheProcessThatListens) {
  const Listener listener;
  EXPECT_NE(port_holder(listener.port()).find("(process " + std::to_string(::getpid()) + ")"),
            std::string::npos)
      << port_holder(listener.port());
}

/// A folder as /proc is, with one process that listens on 8080 and one that is connected to it.
class FakeProc {
 public:
  FakeProc() {
    char name[] = "/tmp/gpusched-proc-XXXXXX";
    root = ::mkdtemp(name);
    fs::create_directories(root + "/net");
    fs::create_directories(root + "/812/fd");
    std::ofstream(root + "/812/comm") << "nginx\n";
    fs::create_symlink("socket:[777]", root + "/812/fd/5");
    std::ofstream(root + "/net/tcp") << "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
                                        "retrnsmt   uid  timeout inode\n"
                                        "   0: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 "
                                        "00000000  1000        0 555 1\n"
                                        "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 "
                                        "00000000     0        0 777 1\n";
  }
  ~FakeProc() { fs::remove_all(root); }
  std::string root;
};

TEST(PortHolder, IsFoundInTheKernelsTable) {
  const FakeProc proc;
  EXPECT_EQ(port_holder(8080, proc.root), "nginx (process 812)");
  EXPECT_EQ(port_holder(8081, proc.root), "");
}

TEST(PortHolder, OfAnotherUserIsNamedByTheUser) {
  const FakeProc proc;
  fs::remove_all(proc.root + "/812");
  EXPECT_EQ(port_holder(8080, proc.root), "a process of user root");
}

TEST(PortHolder, WhatIsNoTableNamesNobody) {
  const FakeProc proc;
  std::ofstream(proc.root + "/net/tcp") << "words\nand\n more : words 0A\n";
  EXPECT_EQ(port_holder(8080, proc.root), "");
  EXPECT_EQ(port_holder(8080, proc.root + "/none"), "");
}

}  // namespace
}  // namespace gpusched
