#include "pilot/confinement.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "pilot/monitors/helper.h"
#include "pilot/monitors/path_search.h"

namespace gpusched::pilot {
namespace {

/// A socket that listens on loopback, and its port.
struct Listening {
  Listening() : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket, 8), 0);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~Listening() { ::close(socket); }
  const int socket;
  uint16_t port = 0;
};

/// 0, or why there was no connection.
int connect_to(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int error =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  ::close(socket);
  return error;
}

/// 0, or why it cannot be opened so.
int open_error(const std::string& path, int how) {
  const int open = ::open(path.c_str(), how | O_CLOEXEC, 0600);
  if (open < 0) return errno;
  ::close(open);
  return 0;
}

class Confinement : public testing::Test {
 protected:
  void SetUp() override {
    if (landlock_version() == 0) GTEST_SKIP() << "this kernel has no Landlock, or it is switched off";
    std::string name = (std::filesystem::temp_directory_path() / "pilot-confined-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* const file : {"a.log", "secret", "config"})
      std::ofstream(folder_ + "/" + file) << "text";
    std::filesystem::create_directory(folder_ + "/state");
    settings_.path = folder_ + "/config";
    settings_.state_dir = folder_ + "/state";
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  /// Runs it in a child that is held to the rules; its result is the number of the first line that failed.
  int held(const std::vector<Destination>& destinations, const std::function<int()>& tries) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!hold_to(kernel_rules(settings_, destinations))) ::_exit(255);
      ::_exit(tries());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 254;
  }

  std::string folder_;
  PilotSettings settings_;
};

TEST_F(Confinement, TheKernelRefusesFilesThatAreNotThePilots) {
  const auto helper = *Helper::start({.patterns = {folder_ + "/*.log"}});
  const std::string secret = folder_ + "/secret", log = folder_ + "/a.log", state = folder_ + "/state/x";
  EXPECT_EQ(open_error(secret, O_RDONLY), 0) << "before, nothing is refused";
  const int failed = held({}, [&] {
    if (open_error(secret, O_RDONLY) != EACCES) return 1;
    if (open_error(log, O_RDONLY) != EACCES) return 2;  // A watched one is the helper's to open.
    if (helper->open_file(log) < 0) return 3;
    if (helper->open_file(secret) >= 0) return 4;
    if (open_error(settings_.path, O_WRONLY) != EACCES) return 5;
    if (open_error(folder_ + "/new", O_WRONLY | O_CREAT) != EACCES) return 6;
    if (open_error(state, O_WRONLY | O_CREAT | O_TRUNC) != 0) return 7;
    if (::rename(state.c_str(), (state + ".1").c_str()) != 0) return 8;
    if (search_paths({folder_ + "/*.log"}).files.size() != 1) return 9;  // Names are no secret.
    if (open_error("/proc/self/cmdline", O_RDONLY) != 0) return 10;
    ::symlink(secret.c_str(), (folder_ + "/state/link").c_str());
    if (::access((folder_ + "/state/link").c_str(), F_OK) == 0) return 11;  // It makes no links.
    return 0;
  });
  EXPECT_EQ(failed, 0) << "the number of the first try that ended otherwise";
}

TEST_F(Confinement, TheKernelRefusesOtherPorts) {
  if (landlock_version() < kLandlockOfPorts) GTEST_SKIP() << "this kernel's Landlock holds no ports";
  const Listening scheduler, other;
  const std::vector<Destination> allowed = {{.url = "http://127.0.0.1:" + std::to_string(scheduler.port)}};
  EXPECT_EQ(connect_to(other.port), 0) << "before, nothing is refused";
  EXPECT_EQ(held(allowed,
                 [&] {
                   if (connect_to(scheduler.port) != 0) return 1;
                   return connect_to(other.port) == EACCES ? 0 : 2;
                 }),
            0);
  EXPECT_EQ(held({}, [&] { return connect_to(scheduler.port) == EACCES ? 0 : 1; }), 0);
}

TEST_F(Confinement, AUsersOwnProgramIsHeldToNothing) {
  const std::string script = "cat " + folder_ + "/secret; sleep 60";
  const auto helper = *Helper::start({.programs = {{"sh", "-c", script}}});
  EXPECT_EQ(held({},
                 [&] {
                   const int output = helper->start_program(0);
                   std::string text(4, '\0');
                   for (int tries = 0; tries < 500 && ::read(output, text.data(), 4) != 4; ++tries)
                     ::usleep(10'000);
                   return text == "text" ? 0 : 1;
                 }),
            0);
}

TEST_F(Confinement, TheDoctorTriesIt) {
  for (const Finding& finding : check_confinement(settings_, kernel_rules(settings_, {}))) {
    const bool may_warn = landlock_version() < kLandlockOfPorts;
    EXPECT_TRUE(finding.verdict == Verdict::kOk || (may_warn && finding.verdict == Verdict::kWarn))
        << finding.check << ": " << finding.detail;
  }
  // Rules that allow everything are found out.
  KernelRules loose = kernel_rules(settings_, {});
  loose.read.emplace_back("/");
  EXPECT_EQ(check_confinement(settings_, loose)[1].verdict, Verdict::kFail);
  settings_.landlock = LandlockUse::kOff;
  EXPECT_EQ(check_confinement(settings_, loose).front().verdict, Verdict::kWarn);
}

TEST(KernelRules, HaveThePortsOfDestinationsAndOfNames) {
  const PilotSettings settings{.state_dir = "/home/me/state"};
  const auto ports = [&](const std::vector<Destination>& destinations) {
    return kernel_rules(settings, destinations).ports;
  };
  using Ports = std::vector<uint16_t>;
  EXPECT_EQ(ports({{.url = "https://gpus.example.org"}}), (Ports{53, 443}));
  EXPECT_EQ(ports({{.url = "http://127.0.0.1:8080"}, {.url = "http://[::1]:11434"}}), (Ports{8080, 11434}));
  EXPECT_EQ(ports({{.url = "unix:///run/gpu.sock"}}), Ports{});
  EXPECT_EQ(kernel_rules(settings, {}).write, std::vector<std::string>{"/home/me/state"});
}

}  // namespace
}  // namespace gpusched::pilot
