#include "shim/attempt_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace gpusched::shim {
namespace {

class AttemptFiles : public ::testing::Test {
 protected:
  AttemptFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "files-XXXXXX").string();
    path_ = mkdtemp(name.data());
    folder_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  ~AttemptFiles() override {
    close(folder_);
    std::filesystem::remove_all(path_);
  }
  struct stat facts_of(const char* name) const {
    struct stat facts{};
    EXPECT_EQ(fstatat(folder_, name, &facts, AT_SYMLINK_NOFOLLOW), 0);
    return facts;
  }

  std::string path_;
  int folder_ = -1;
};

TEST_F(AttemptFiles, AreMadeOrLoseWhatTheyHad) {
  const int made = open_emptied(folder_, "stdout");
  ASSERT_GE(made, 0);
  EXPECT_EQ(write(made, "old and long", 12), 12);
  close(made);
  EXPECT_EQ(facts_of("stdout").st_mode & 07777, 0640u);
  const int again = open_emptied(folder_, "stdout", O_APPEND);
  ASSERT_GE(again, 0);
  EXPECT_EQ(facts_of("stdout").st_size, 0);
  EXPECT_EQ(write(again, "new", 3), 3);
  close(again);
  EXPECT_EQ(facts_of("stdout").st_size, 3);
}

TEST_F(AttemptFiles, ThatAreEmptyAreNotTruncated) {
  close(open_emptied(folder_, "stdout"));
  const std::array<timespec, 2> long_ago{timespec{.tv_sec = 1, .tv_nsec = 0},
                                         timespec{.tv_sec = 1, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(folder_, "stdout", long_ago.data(), 0), 0);
  close(open_emptied(folder_, "stdout"));
  EXPECT_EQ(facts_of("stdout").st_mtim.tv_sec, 1);
}

TEST_F(AttemptFiles, AreNoLinks) {
  std::ofstream(path_ + "/elsewhere") << "kept";
  std::filesystem::create_symlink("elsewhere", path_ + "/stdout");
  EXPECT_EQ(open_emptied(folder_, "stdout"), -1);
  EXPECT_EQ(errno, ELOOP);
  EXPECT_EQ(facts_of("elsewhere").st_size, 4);
}

TEST_F(AttemptFiles, APayloadIsTakenOnceAndWhole) {
  std::filesystem::create_directory(path_ + "/attempts");
  std::filesystem::create_directory(path_ + "/payloads");
  const int attempts = ::open((path_ + "/attempts").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const AttemptKey key{JobId{12}, 1, 0};
  EXPECT_EQ(take_payload(attempts, key, 4), -1);
  EXPECT_EQ(errno, ENOENT);
  std::ofstream(path_ + "/payloads/12-1-0") << "data";
  EXPECT_EQ(take_payload(attempts, key, 5), -1);
  EXPECT_EQ(errno, EIO);
  const int payload = take_payload(attempts, key, 4);
  ASSERT_GE(payload, 0);
  std::array<char, 8> bytes{};
  EXPECT_EQ(read(payload, bytes.data(), bytes.size()), 4);
  EXPECT_STREQ(bytes.data(), "data");
  EXPECT_FALSE(std::filesystem::exists(path_ + "/payloads/12-1-0"));
  std::filesystem::create_symlink("/etc/hostname", path_ + "/payloads/12-1-0");
  EXPECT_EQ(take_payload(attempts, key, 4), -1);
  EXPECT_EQ(errno, ELOOP);
  close(payload);
  close(attempts);
}

}  // namespace
}  // namespace gpusched::shim
