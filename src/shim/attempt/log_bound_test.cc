#include "shim/attempt/log_bound.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace gpusched::shim {
namespace {

constexpr int64_t kMegabyte = 1 << 20;

class LogBoundTest : public ::testing::Test {
 protected:
  LogBoundTest() {
    std::string name = (std::filesystem::temp_directory_path() / "gpusched-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
    folder_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY);
    output_ = open((path_ + "/stdout").c_str(), O_RDWR | O_CREAT | O_APPEND, 0640);
    error_output_ = open((path_ + "/stderr").c_str(), O_RDWR | O_CREAT | O_APPEND, 0640);
  }
  ~LogBoundTest() override {
    for (const int descriptor : {folder_, output_, error_output_}) close(descriptor);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  void write_output(int64_t bytes, char letter = 'x') {
    const std::string block(static_cast<std::size_t>(kMegabyte), letter);
    for (; bytes > 0; bytes -= kMegabyte) {
      ASSERT_EQ(write(output_, block.data(), block.size()), static_cast<ssize_t>(block.size()));
    }
  }
  int64_t size() const {
    struct stat facts{};
    return fstat(output_, &facts) == 0 ? facts.st_size : -1;
  }
  int64_t kept() const {
    struct stat facts{};
    return fstat(output_, &facts) == 0 ? int64_t{facts.st_blocks} * 512 : -1;
  }
  bool holes_work() const {
    const int file = open((path_ + "/probe").c_str(), O_RDWR | O_CREAT, 0600);
    const bool works = ftruncate(file, 8'192) == 0 &&
                       fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4'096) == 0;
    close(file);
    return works;
  }
  std::vector<LogTime> times() const {
    std::vector<LogTime> read_back(10'000);
    const int file = open((path_ + "/" + kLogTimesFile).c_str(), O_RDONLY);
    if (file < 0) return {};
    const ssize_t got = read(file, read_back.data(), read_back.size() * sizeof(LogTime));
    close(file);
    read_back.resize(static_cast<std::size_t>(got) / sizeof(LogTime));
    return read_back;
  }

  std::string path_;
  int folder_ = -1;
  int output_ = -1;
  int error_output_ = -1;
};

TEST_F(LogBoundTest, KeepsTheNewestBytesAndTheirOffsets) {
  if (!holes_work()) GTEST_SKIP() << "this file system has no holes";
  LogBound bound(folder_, output_, error_output_, 2 * kMegabyte);
  write_output(10 * kMegabyte);
  write_output(1, 'y');
  bound.look(Time{1}, Time{1});
  EXPECT_EQ(size(), 11 * kMegabyte);
  EXPECT_LE(kept(), 2 * kMegabyte + 64 * 1024);
  char last = 0;
  char first_kept = 0;
  EXPECT_EQ(pread(output_, &last, 1, size() - 1), 1);
  EXPECT_EQ(pread(output_, &first_kept, 1, size() - 2 * kMegabyte), 1);
  EXPECT_EQ(last, 'y');
  EXPECT_EQ(first_kept, 'x');
}

TEST_F(LogBoundTest, WithoutALimitNothingIsGivenBack) {
  LogBound bound(folder_, output_, error_output_, 0);
  write_output(4 * kMegabyte);
  bound.look(Time{1}, Time{1});
  bound.finish(Time{2});
  EXPECT_GE(kept(), 4 * kMegabyte);
}

TEST_F(LogBoundTest, LooksOftenerTheFasterItGrowsAndSeldomWhenQuiet) {
  LogBound bound(folder_, output_, error_output_, 8 * kMegabyte);
  write_output(kMegabyte);
  const Duration slow = bound.look(Time{} + seconds(1), Time{1});
  write_output(4 * kMegabyte);
  const Duration fast = bound.look(Time{} + seconds(1) + milliseconds(20), Time{1});
  EXPECT_LT(fast, slow);
  Duration quiet;
  for (int i = 0; i < 20; ++i) quiet = bound.look(Time{} + seconds(2 + i), Time{1});
  EXPECT_EQ(quiet, seconds(2));
}

TEST_F(LogBoundTest, NotesWhichSizeTheOutputHadWhen) {
  LogBound bound(folder_, output_, error_output_, 0);
  const Time start{1'000'000'000'000};
  write_output(kMegabyte);
  bound.look(Time{} + seconds(1), start);
  write_output(kMegabyte);
  bound.look(Time{} + milliseconds(1'100), start + milliseconds(100));  // Too soon after the last note.
  bound.look(Time{} + seconds(3), start + seconds(2));
  bound.look(Time{} + seconds(5), start + seconds(4));  // Nothing new.
  const std::vector<LogTime> noted = times();
  ASSERT_EQ(noted.size(), 2u);
  EXPECT_EQ(noted[0].unix_ns, start.ns);
  EXPECT_EQ(noted[0].sizes[0], kMegabyte);
  EXPECT_EQ(noted[1].unix_ns, (start + seconds(2)).ns);
  EXPECT_EQ(noted[1].sizes[0], 2 * kMegabyte);
}

TEST_F(LogBoundTest, TheNotesStayFewAndInOrder) {
  LogBound bound(folder_, output_, error_output_, 0);
  const char byte = 'x';
  for (int64_t i = 1; i <= 20'000; ++i) {
    ASSERT_EQ(write(error_output_, &byte, 1), 1);
    bound.look(Time{} + seconds(i), Time{} + seconds(i));
  }
  const std::vector<LogTime> noted = times();
  ASSERT_LE(noted.size(), LogBound::kTimesMax);
  ASSERT_GT(noted.size(), LogBound::kTimesMax / 4);
  for (std::size_t i = 1; i < noted.size(); ++i) {
    ASSERT_GT(noted[i].unix_ns, noted[i - 1].unix_ns);
    ASSERT_EQ(noted[i].sizes[1], noted[i].unix_ns / 1'000'000'000);
  }
}

TEST_F(LogBoundTest, ALinkInTheNotesPlaceIsNotFollowed) {
  const std::string precious = path_ + "/precious";
  close(open(precious.c_str(), O_CREAT | O_WRONLY, 0600));
  ASSERT_EQ(symlink(precious.c_str(), (path_ + "/" + kLogTimesFile).c_str()), 0);
  LogBound bound(folder_, output_, error_output_, 0);
  write_output(kMegabyte);
  bound.look(Time{1}, Time{1});
  EXPECT_EQ(std::filesystem::file_size(precious), 0u);
}

}  // namespace
}  // namespace gpusched::shim
