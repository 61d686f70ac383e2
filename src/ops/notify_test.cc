#include "ops/notify.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

namespace gpusched {
namespace {

/// A service manager's end of the protocol.
class Manager : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "gpusched_notify_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/socket";
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, path_.c_str(), sizeof at.sun_path - 1);
    ASSERT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  }
  void TearDown() override {
    ::close(socket_);
    std::filesystem::remove_all(folder_);
  }
  /// The next datagram, or nothing.
  std::string heard() const {
    char text[1024];
    const ssize_t size = ::recv(socket_, text, sizeof text, 0);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

  std::string folder_;
  std::string path_;
  int socket_ = -1;
};

TEST_F(Manager, HearsEachWord) {
  const ServiceNotifier notifier(path_, seconds(10));
  EXPECT_TRUE(notifier.active());
  EXPECT_EQ(notifier.keep_alive_every(), seconds(5));
  notifier.ready("serving\non two lines");
  EXPECT_EQ(heard(), "READY=1\nSTATUS=serving on two lines");
  notifier.reloading();
  EXPECT_TRUE(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
  notifier.keep_alive();
  EXPECT_EQ(heard(), "WATCHDOG=1");
  notifier.stopping();
  EXPECT_TRUE(heard().starts_with("STOPPING=1\n"));
  EXPECT_EQ(heard(), "");
}

TEST_F(Manager, IsTakenFromTheEnvironmentAndHiddenFromJobs) {
  ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
  for (const char* const name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) {
    EXPECT_EQ(::getenv(name), nullptr) << name;
  }
  EXPECT_EQ(notifier.keep_alive_every(), milliseconds(1'500));
  notifier.status("well");
  EXPECT_EQ(heard(), "STATUS=well");
}

TEST_F(Manager, OfAnotherProcessExpectsNoSignOfLife) {
  ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(ServiceNotifier::take_from_environment().keep_alive_every(), Duration{});
}

TEST(ServiceNotifier, WithoutAManagerDoesNothing) {
  const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
  EXPECT_FALSE(notifier.active());
  EXPECT_EQ(notifier.keep_alive_every(), Duration{});
  notifier.ready("");
  ServiceNotifier("relative/path", seconds(1)).keep_alive();
  EXPECT_FALSE(ServiceNotifier(std::string(200, '/'), seconds(1)).active());
}

}  // namespace
}  // namespace gpusched
