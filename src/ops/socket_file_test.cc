#include "ops/socket_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "ops/api_socket.h"

namespace gpusched::ops {
namespace {

class SocketFiles : public ::testing::Test {
 protected:
  SocketFiles() {
    char name[] = "/tmp/socket-file-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/api.sock";
  }
  ~SocketFiles() override { std::filesystem::remove_all(folder_); }

  /// Bound and listening, like a server.
  static std::unique_ptr<SocketFile> serve(const std::string& path) {
    Result<std::unique_ptr<SocketFile>> made = SocketFile::bind(path);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    if (!made.ok()) return nullptr;
    const int socket = (*made)->take_descriptor();
    EXPECT_EQ(listen(socket, 4), 0);
    listening_ = socket;
    return std::move(*made);
  }
  /// A process that served and was killed.
  void leave_a_dead_one() {
    const pid_t child = fork();
    if (child == 0) {
      const auto server = serve(path_);
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_TRUE(std::filesystem::is_socket(path_));
  }

  std::string folder_, path_;
  static inline int listening_ = -1;
};

TEST_F(SocketFiles, EverybodyMayConnectWhateverTheUmaskIs) {
  const mode_t before = umask(0077);
  const auto server = serve(path_);
  umask(before);
  struct stat facts{};
  ASSERT_EQ(stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0666U);
}

TEST_F(SocketFiles, NothingIsLeftAfterACleanEnd) {
  {
    const auto server = serve(path_);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(SocketFile::bind(path_).ok());
}

TEST_F(SocketFiles, ADeadServersSocketIsReplaced) {
  leave_a_dead_one();
  const auto server = serve(path_);
  EXPECT_EQ(find_api_socket({path_}), path_);
}

TEST_F(SocketFiles, ALivingServersSocketIsNotTaken) {
  const auto server = serve(path_);
  const auto second = SocketFile::bind(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
  EXPECT_NE(second.error().message.find(path_), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

TEST_F(SocketFiles, OneThatListensThereWithoutALockIsNotTakenEither) {
  {
    const auto server = serve(path_);
    std::filesystem::rename(path_, path_ + ".moved");  // So that the end does not remove it.
  }
  std::filesystem::rename(path_ + ".moved", path_);
  const auto second = SocketFile::bind(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
  close(listening_);
  EXPECT_TRUE(SocketFile::bind(path_).ok());
}

TEST_F(SocketFiles, AFileThatIsNoSocketStaysWhereItIs) {
  std::ofstream(path_) << "mine";
  const auto made = SocketFile::bind(path_);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

TEST_F(SocketFiles, AnothersSocketIsNotRemovedAtTheEnd) {
  const auto server = serve(path_);
  std::filesystem::remove(path_);
  std::ofstream(path_) << "another's";
  server->remove();
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(SocketFiles, APathThatIsTooLongOrRelativeIsRefusedInWords) {
  const auto made = SocketFile::bind(folder_ + "/" + std::string(kSocketPathMax, 'x'));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(made.error().message.find("at most 107"), std::string::npos) << made.error().message;
  EXPECT_FALSE(SocketFile::bind("api.sock").ok());
  // One byte less is taken.
  const std::string fits = folder_ + "/" + std::string(kSocketPathMax - folder_.size() - 1, 'x');
  EXPECT_TRUE(SocketFile::bind(fits).ok());
}

TEST_F(SocketFiles, AFolderThatOthersMayWriteToIsNotBelieved) {
  const auto server = serve(path_);
  EXPECT_EQ(find_api_socket({"", folder_ + "/none.sock", path_}), path_);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_EQ(find_api_socket({path_}), "");
}

TEST_F(SocketFiles, AStrangersFolderIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  constexpr uid_t kStranger = 4'321;
  const auto server = serve(path_);
  // Root listens in a stranger's folder: whoever has it could exchange the socket.
  ASSERT_EQ(chown(folder_.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(find_api_socket({path_}), "");
}

TEST_F(SocketFiles, ADeadSocketIsNotFound) {
  leave_a_dead_one();
  EXPECT_EQ(find_api_socket({path_}), "");
}

TEST_F(SocketFiles, FoldersAreMadeForTheirUsers) {
  const std::string shared = folder_ + "/shared/api.sock", own = folder_ + "/own/api.sock";
  EXPECT_TRUE(make_socket_folder(shared, true));
  EXPECT_TRUE(make_socket_folder(own, false));
  struct stat facts{};
  ASSERT_EQ(stat((folder_ + "/shared").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0755U);
  ASSERT_EQ(stat((folder_ + "/own").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
  EXPECT_TRUE(make_socket_folder(shared, true));
  ASSERT_EQ(chmod((folder_ + "/shared").c_str(), 0777), 0);
  EXPECT_FALSE(make_socket_folder(shared, true));
  EXPECT_EQ(personal_socket("/run/user/1000"), "/run/user/1000/gpu-scheduler/api.sock");
  EXPECT_EQ(personal_socket(""), "");
}

}  // namespace
}  // namespace gpusched::ops
