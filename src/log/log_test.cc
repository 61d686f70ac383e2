#include "log/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "log/line.h"

namespace gpusched {
namespace {

std::string json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string rfc3339(int64_t ns) {
  std::string out;
  append_rfc3339(out, {ns});
  return out;
}

class LogFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "gpusched_log_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/log.jsonl";
  }
  void TearDown() override {
    log_shut_down();
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);) out.push_back(line);
    return out;
  }
  std::string folder_;
  std::string path_;
};

TEST(LogLine, HasTheFieldsInOrder) {
  EXPECT_EQ(
      format_log_line({1'738'314'000'123'456'789}, LogLevel::kInfo, "scheduler", "task_submitted",
                      {.job = "job-12"}, {{"gpus", 2}, {"model", "A100"}}),
      "{\"timestamp\":\"2025-01-31T09:00:00.123Z\",\"level\":\"info\",\"component\":\"scheduler\","
      "\"event\":\"task_submitted\",\"task_id\":\"job-12\",\"details\":{\"gpus\":2,\"model\":\"A100\"}}\n");
}

TEST(LogLine, OmitsTheTaskIdWhenItIsAboutNoJob) {
  EXPECT_EQ(format_log_line({0}, LogLevel::kError, "agent", "gpu_detected", {}, {}),
            "{\"timestamp\":\"1970-01-01T00:00:00.000Z\",\"level\":\"error\",\"component\":\"agent\","
            "\"event\":\"gpu_detected\",\"details\":{}}\n");
}

TEST(LogLine, PrintsAJobIdAsClientsSeeIt) {
  const std::string line =
      format_log_line({0}, LogLevel::kDebug, "engine", "task_pending", {.id = JobId{7}}, {});
  EXPECT_NE(line.find("\"task_id\":\"job-7\""), std::string::npos) << line;
}

TEST(LogLine, PrintsEveryKindOfValue) {
  const std::string owned = "owned";
  const std::string line = format_log_line({0}, LogLevel::kInfo, "c", "e", {},
                                           {{"text", owned},
                                            {"yes", true},
                                            {"small", int8_t{-3}},
                                            {"low", std::numeric_limits<int64_t>::min()},
                                            {"high", std::numeric_limits<uint64_t>::max()},
                                            {"half", 0.5},
                                            {"nan", std::nan("")}});
  EXPECT_NE(line.find("{\"text\":\"owned\",\"yes\":true,\"small\":-3,\"low\":-9223372036854775808,"
                      "\"high\":18446744073709551615,\"half\":0.5,\"nan\":null}"),
            std::string::npos)
      << line;
}

TEST(LogTime, RoundsDownBeforeTheEpochToo) {
  EXPECT_EQ(rfc3339(999'999), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(rfc3339(-1), "1969-12-31T23:59:59.999Z");
}

TEST(JsonString, EscapesQuotesBackslashesAndControls) {
  EXPECT_EQ(json("a\"b\\c\n\r\t\x01\x1f\x7f"), "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001f\\u007f\"");
  EXPECT_EQ(json(std::string_view("\0", 1)), "\"\\u0000\"");
}

TEST(JsonString, KeepsValidUtf8) { EXPECT_EQ(json("é€😀"), "\"é€😀\""); }

TEST(JsonString, ReplacesEachByteThatIsNotUtf8) {
  EXPECT_EQ(json("\xff"), "\"\\ufffd\"");
  EXPECT_EQ(json("a\xc3"), "\"a\\ufffd\"");                                 // Cut short.
  EXPECT_EQ(json("\xc0\xaf"), "\"\\ufffd\\ufffd\"");                        // Overlong slash.
  EXPECT_EQ(json("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");             // Surrogate.
  EXPECT_EQ(json("\xf4\x90\x80\x80"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");  // Above U+10FFFF.
}

TEST(JsonString, EveryByteGivesPrintableOutput) {
  for (int c = 0; c < 256; ++c) {
    const char byte = static_cast<char>(c);
    for (const char out : json(std::string_view(&byte, 1))) {
      EXPECT_GE(out, 0x20) << "byte " << c;
      EXPECT_LT(out, 0x7f) << "byte " << c;
    }
  }
}

TEST(JsonString, CutsALongValueBetweenCharacters) {
  std::string text(kLogValueBytesMax - 1, 'x');
  text += "é and more";
  EXPECT_EQ(json(text), '"' + std::string(kLogValueBytesMax - 1, 'x') + "…\"");
}

TEST(LogLevels, ParseTheirNamesAndNothingElse) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    const Result<LogLevel> parsed = parse_log_level(to_string(level));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, level);
  }
  const Result<LogLevel> unknown = parse_log_level("loud");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(LogFile, HoldsEveryLineInOrderAfterAFlush) {
  ASSERT_TRUE(log_set_up({.path = path_}).ok());
  for (int i = 0; i < 100; ++i) log_event(LogLevel::kInfo, "test", "counted", {}, {{"i", i}});
  log_flush();
  const std::vector<std::string> written = lines();
  ASSERT_EQ(written.size(), 100u);
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_NE(written[i].find("\"i\":" + std::to_string(i) + "}}"), std::string::npos) << written[i];
  }
}

TEST_F(LogFile, LeavesOutLinesBelowTheLevel) {
  ASSERT_TRUE(log_set_up({.path = path_, .level = LogLevel::kWarning}).ok());
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  log_event(LogLevel::kInfo, "test", "quiet");
  log_event(LogLevel::kWarning, "test", "heard");
  log_set_level(LogLevel::kDebug);
  log_event(LogLevel::kDebug, "test", "now_heard");
  log_flush();
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(LogFile, IsAppendedToNotReplaced) {
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(log_set_up({.path = path_}).ok());
    log_event(LogLevel::kInfo, "test", "round");
    log_shut_down();
  }
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(LogFile, IsOpenedAnewAfterARotation) {
  ASSERT_TRUE(log_set_up({.path = path_}).ok());
  log_event(LogLevel::kInfo, "test", "before");
  log_flush();
  const std::string rotated = path_ + ".1";
  ASSERT_EQ(::rename(path_.c_str(), rotated.c_str()), 0);
  ASSERT_TRUE(log_reopen({.path = path_, .level = LogLevel::kWarning}).ok());
  log_event(LogLevel::kInfo, "test", "below_the_new_level");
  log_event(LogLevel::kWarning, "test", "after");
  log_flush();
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_NE(lines()[0].find("\"after\""), std::string::npos);
  EXPECT_FALSE(log_reopen({.path = "/proc/nowhere/log"}).ok());
  log_event(LogLevel::kWarning, "test", "still_there");
  log_flush();
  EXPECT_EQ(lines().size(), 2u);
  ::unlink(rotated.c_str());
}

TEST_F(LogFile, CountsTheLinesThatAFloodDrops) {
  // A FIFO that nobody reads stops the writer, so that the queue overruns; the callers never wait.
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const int reader = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(log_set_up({.path = path_}).ok());
  constexpr int kLines = 20'000;
  for (int i = 0; i < kLines; ++i) log_event(LogLevel::kInfo, "test", "flood", {}, {{"i", i}});

  std::string read;
  std::thread drain([&] {
    std::array<char, 65536> chunk;
    while (read.find("\"last\"") == std::string::npos) {
      const ssize_t count = ::read(reader, chunk.data(), chunk.size());
      if (count > 0) read.append(chunk.data(), static_cast<size_t>(count));
      if (count <= 0) std::this_thread::yield();
    }
  });
  log_event(LogLevel::kInfo, "test", "last");
  drain.join();
  log_shut_down();
  ::close(reader);

  int kept = 0;
  for (size_t at = read.find("\"flood\""); at != std::string::npos; at = read.find("\"flood\"", at + 1))
    ++kept;
  long dropped = 0;
  static constexpr std::string_view kCount = "\"log_lines_dropped\",\"details\":{\"count\":";
  for (size_t at = read.find(kCount); at != std::string::npos; at = read.find(kCount, at + 1)) {
    dropped += std::strtol(read.c_str() + at + kCount.size(), nullptr, 10);
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(kept + dropped, kLines);
}

TEST_F(LogFile, IsCompleteWhenTheProcessExits) {
  // The child is this program again: a fork alone would have no writer thread.
  if (const char* const path = std::getenv("GPUSCHED_TEST_LOG_PATH"); path != nullptr) {
    ASSERT_TRUE(log_set_up({.path = path}).ok());
    for (int i = 0; i < 1'000; ++i) log_event(LogLevel::kInfo, "test", "at_exit");
    std::exit(0);
  }
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::setenv("GPUSCHED_TEST_LOG_PATH", path_.c_str(), 1);
    ::execl("/proc/self/exe", "log_test", "--gtest_filter=LogFile.IsCompleteWhenTheProcessExits", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(lines().size(), 1'000u);
}

TEST(LogSetUp, NamesTheFileThatCannotBeOpened) {
  const Result<Unit> done = log_set_up({.path = "/proc/nowhere/log"});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kIo);
  EXPECT_EQ(done.error().field, "log.path");
  EXPECT_NE(done.error().message.find("/proc/nowhere/log"), std::string::npos);
}

}  // namespace
}  // namespace gpusched
