#include "node/output/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "node/testing/testing.h"
#include "shim/attempt/log_bound.h"

namespace gpusched {
namespace {

class LogFileTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void write_output(const std::string& text) {
    std::ofstream(path("stdout"), std::ios::app | std::ios::binary) << text;
  }
  LogFile file(bool of_stderr = false) const {
    auto opened = LogFile::open(folder_.path(), of_stderr);
    EXPECT_TRUE(std::holds_alternative<LogFile>(opened));
    return std::get<LogFile>(std::move(opened));
  }
  LogTrouble trouble(bool of_stderr = false) const {
    auto opened = LogFile::open(folder_.path(), of_stderr);
    EXPECT_TRUE(std::holds_alternative<LogTrouble>(opened));
    return std::get<LogTrouble>(opened);
  }
  /// False where the file system has no holes.
  bool cut_before(int64_t offset) const {
    const int file = open(path("stdout").c_str(), O_WRONLY);
    const bool cut = fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, offset) == 0;
    close(file);
    return cut;
  }

  TemporaryFolder folder_;
};

TEST_F(LogFileTest, ReadsAPieceWhateverBytesItHas) {
  const std::string bytes("a\0\xff\n\r\x1b[0m", 9);
  write_output(bytes);
  EXPECT_EQ(file().read(0, 100), bytes);
  EXPECT_EQ(file().read(1, 2), bytes.substr(1, 2));
  EXPECT_EQ(file().read(99, 10), "");
}

TEST_F(LogFileTest, WhatIsAbsentHasNoCode) {
  EXPECT_EQ(trouble().code, "");
  EXPECT_EQ(std::get<LogTrouble>(LogFile::open(path("nowhere"), false)).code, "");
}

TEST_F(LogFileTest, ALinkIsToldAndNotFollowed) {
  std::filesystem::create_symlink("/etc/passwd", path("stdout"));
  EXPECT_EQ(trouble().code, "log_elsewhere");
  EXPECT_NE(trouble().message.find("/etc/passwd"), std::string::npos);
}

TEST_F(LogFileTest, APipeAFolderAndAFolderThatIsALinkAreNotRead) {
  mkfifo(path("stdout").c_str(), 0600);
  std::filesystem::create_directory(path("stderr"));
  EXPECT_EQ(trouble().code, "log_not_found");
  EXPECT_EQ(trouble(true).code, "log_not_found");
  std::filesystem::create_symlink("/etc", path("link"));
  EXPECT_EQ(std::get<LogTrouble>(LogFile::open(path("link"), false)).code, "log_not_found");
}

TEST_F(LogFileTest, TailBeginsAtTheLastLines) {
  write_output("one\ntwo\nthree\nfour");
  EXPECT_EQ(file().tail(1), 14);
  EXPECT_EQ(file().tail(2), 8);
  EXPECT_EQ(file().tail(4), 0);
  EXPECT_EQ(file().tail(99), 0);
  write_output("\n");
  EXPECT_EQ(file().tail(1), 14);
}

TEST_F(LogFileTest, TailGoesBackOverManyBlocks) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "line " + std::to_string(i) + "\n";
  write_output(text);
  const int64_t from = file().tail(90'000);
  EXPECT_EQ(file().read(from, 11), "line 10000\n");
}

TEST_F(LogFileTest, TheOldestKeptByteIsKnownFromTheFileAlone) {
  write_output(std::string(1 << 20, 'x'));
  EXPECT_EQ(file().oldest(), 0);
  if (!cut_before(512 << 10)) GTEST_SKIP() << "this file system has no holes";
  EXPECT_EQ(file().oldest(), 512 << 10);
  EXPECT_EQ(file().tail(5), 512 << 10);
}

TEST_F(LogFileTest, SinceBeginsAtWhatWasWrittenAtThatTimeAndAWholeLine) {
  write_output("first\nsecond\nthird\n");
  const shim::LogTime times[] = {{.unix_ns = 1'000, .sizes = {6, 0}}, {.unix_ns = 2'000, .sizes = {9, 0}}};
  std::ofstream(path("log-times"), std::ios::binary)
      .write(reinterpret_cast<const char*>(times), sizeof times);
  EXPECT_EQ(file().since(999), 0);
  EXPECT_EQ(file().since(1'000), 6);
  EXPECT_EQ(file().since(2'500), 6);  // Nine bytes were there: the line that they end in is told whole.
  EXPECT_EQ(file().since(INT64_MAX), file().size());
}

TEST_F(LogFileTest, NotesOfTimeThatAreNotInOrderAreNotTrusted) {
  write_output("first\nsecond\n");
  const shim::LogTime times[] = {{.unix_ns = 2'000, .sizes = {6, 0}}, {.unix_ns = 1'000, .sizes = {9, 0}}};
  std::ofstream(path("log-times"), std::ios::binary)
      .write(reinterpret_cast<const char*>(times), sizeof times);
  EXPECT_EQ(file().since(3'000), 0);
}

TEST_F(LogFileTest, GrepTakesWholeLinesAndSaysWhereToGoOn) {
  write_output("loss 1\nsaved\nloss 2\nlo");
  const LogLines found = file().grep(0, "loss", 1'000, false);
  EXPECT_EQ(found.data, "loss 1\nloss 2\n");
  EXPECT_EQ(found.first, 0);
  EXPECT_EQ(found.next, 20);
  EXPECT_FALSE(found.more);
  write_output("ss 3");
  const LogLines rest = file().grep(found.next, "loss", 1'000, true);
  EXPECT_EQ(rest.data, "loss 3");
  EXPECT_EQ(rest.first, 20);
}

TEST_F(LogFileTest, TimestampsAreThoseOfTheFirstNoteThatHasTheLine) {
  write_output("a\n\nbb\nlast");
  constexpr int64_t kNoon = 1'769'860'800'000'000'000;  // 2026-01-31T12:00:00Z
  const shim::LogTime times[] = {{.unix_ns = kNoon, .sizes = {3, 0}},
                                 {.unix_ns = kNoon + 61'000'000'000, .sizes = {6, 0}}};
  std::ofstream(path("log-times"), std::ios::binary)
      .write(reinterpret_cast<const char*>(times), sizeof times);
  const timespec written[2] = {{.tv_sec = 1'769'864'400, .tv_nsec = 0},
                               {.tv_sec = 1'769'864'400, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path("stdout").c_str(), written, 0), 0);
  const LogLines all = file().grep(0, "", 4'096, true, true);
  EXPECT_EQ(
      all.data,
      "2026-01-31T12:00:00Z a\n2026-01-31T12:00:00Z \n2026-01-31T12:01:01Z bb\n2026-01-31T13:00:00Z last");
  EXPECT_EQ(all.next, 10);
  const LogLines whole = file().grep(2, "", 4'096, false, true);
  EXPECT_EQ(whole.data, "2026-01-31T12:00:00Z \n2026-01-31T12:01:01Z bb\n");
  EXPECT_EQ(whole.next, 6);
  EXPECT_EQ(file().grep(0, "b", 4'096, true, true).data, "2026-01-31T12:01:01Z bb\n");
}

TEST_F(LogFileTest, GrepStopsWhenItHasEnough) {
  for (int i = 0; i < 1'000; ++i) write_output("hit " + std::to_string(i) + "\n");
  const LogLines found = file().grep(0, "hit", 100, false);
  EXPECT_TRUE(found.more);
  EXPECT_LT(found.data.size(), 200u);
  EXPECT_EQ(found.next, static_cast<int64_t>(found.data.size()));
}

TEST_F(LogFileTest, GrepOfALineWithoutEndGoesOn) {
  write_output(std::string(3 << 20, 'x') + "needle");
  const LogLines found = file().grep(0, "needle", 100, true);
  EXPECT_EQ(found.next, file().size());
  EXPECT_NE(found.data.find("needle"), std::string::npos);
}

}  // namespace
}  // namespace gpusched
