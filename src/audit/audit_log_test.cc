#include "audit/audit_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/ids.h"

namespace gpusched::audit {
namespace {

using access::Action;

Line submission(uint64_t job, uint64_t request = 0) {
  Line line{.at = Time{1'700'000'000'123'000'000}, .peer = "127.0.0.1"};
  line.request = {request == 0 ? job : request};
  line.action = Action::kSubmitJob;
  line.job = line.last_job = JobId{job};
  return line;
}

Line refusal(std::string peer) {
  Line line{.outcome = Outcome::kUnauthenticated, .peer = std::move(peer), .code = "unauthenticated"};
  line.action = Action::kCancelJob;
  return line;
}

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() {
    char pattern[] = "/tmp/gpusched-audit-XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/audit.log";
  }
  ~AuditLogTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<AuditLog> open(AuditOptions options = {}) {
    if (options.path.empty()) options.path = path_;
    auto log = AuditLog::open(options);
    EXPECT_TRUE(log.ok()) << log.error().message;
    return std::move(*log);
  }
  static std::vector<std::string> lines_of(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  static bool names(const std::string& line, const std::string& word) {
    return line.find("\"" + word + "\"") != std::string::npos;
  }

  std::string folder_, path_;
};

TEST_F(AuditLogTest, AppendsToAFileThatOnlyItsOwnerReads) {
  open()->add(submission(1));
  open()->add(submission(2));
  const auto lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(names(lines[0], "job-1"));
  EXPECT_TRUE(names(lines[1], "job-2"));
  struct stat file{};
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600U);
}

TEST_F(AuditLogTest, AFlushedLineIsThere) {
  const auto log = open({.linger = minutes(10)});
  log->add(submission(1));
  log->flush();
  EXPECT_EQ(lines_of(path_).size(), 1U);
  EXPECT_EQ(log->lines_written(), 1U);
}

TEST_F(AuditLogTest, ReopenedItGoesOnInTheFileOfThatName) {
  const auto log = open();
  log->add(submission(1));
  log->flush();
  std::filesystem::rename(path_, path_ + ".old");
  log->add(submission(2));
  log->reopen();
  log->add(submission(3));
  log->flush();
  const auto old = lines_of(path_ + ".old");
  ASSERT_EQ(old.size(), 2U);
  EXPECT_TRUE(names(old[1], "job-2"));
  ASSERT_EQ(lines_of(path_).size(), 1U);
  EXPECT_TRUE(names(lines_of(path_)[0], "job-3"));
}

TEST_F(AuditLogTest, ALineThatWasCutShortIsNotContinued) {
  std::ofstream(path_) << R"({"time":"2026-)";
  open()->add(submission(1));
  const auto lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], R"({"time":"2026-)");
  EXPECT_TRUE(lines[1].starts_with("{\"time\":") && lines[1].ends_with("}")) << lines[1];
}

TEST_F(AuditLogTest, AFullDiskLosesLinesAndCountsThem) {
  const auto log = open({.path = "/dev/full"});
  for (uint64_t job = 1; job <= 3; ++job) log->add(submission(job));
  log->flush();
  EXPECT_EQ(log->lines_lost(), 3U);
  EXPECT_EQ(log->lines_written(), 0U);
}

TEST_F(AuditLogTest, LeavesTheLastRoomOfADiskToOthers) {
  const auto log = open({.leaves_bytes = UINT64_MAX});
  log->add(submission(1));
  log->flush();
  EXPECT_EQ(log->lines_lost(), 1U);
  EXPECT_EQ(std::filesystem::file_size(path_), 0U);
}

TEST_F(AuditLogTest, APathThatCannotBeRightIsAnError) {
  const auto log = AuditLog::open({.path = folder_ + "/no/such/folder/audit.log"});
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().field, "audit.file");
  EXPECT_NE(log.error().message.find("No such file or directory"), std::string::npos);
}

TEST_F(AuditLogTest, AFullQueueLosesLinesAndDoesNotWait) {
  const auto log = open({.lines_max = 8, .linger = minutes(10)});
  // Each by another, so that none is merged. The thread takes the first ones at a quarter of the queue.
  for (uint64_t job = 1; job <= 10'000; ++job) log->add(submission(job));
  log->flush();
  EXPECT_GT(log->lines_lost(), 0U);
  EXPECT_EQ(log->lines_lost() + log->lines_written(), 10'000U);
  EXPECT_EQ(lines_of(path_).size(), log->lines_written());
}

TEST_F(AuditLogTest, ABigFileIsRenamedAndBegunAnew) {
  const auto log = open({.bytes_max = 1'000});
  for (uint64_t job = 1; job <= 40; ++job) {
    log->add(submission(job));
    log->flush();
  }
  EXPECT_LE(std::filesystem::file_size(path_), 1'400U);
  EXPECT_LE(std::filesystem::file_size(path_ + ".1"), 1'400U);
  EXPECT_TRUE(names(lines_of(path_ + ".1").front(), "submit_job"));
}

TEST_F(AuditLogTest, SubmissionsOfOneStreamAreOneLine) {
  {
    const auto log = open({.linger = minutes(10)});
    for (uint64_t job = 11; job <= 19; job += 2) log->add(submission(job, 77));
    log->add(submission(20, 78));
  }
  const auto lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find(R"("resource":"job-11","count":5,"last":"job-19")"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1].find("count"), std::string::npos) << lines[1];
}

TEST_F(AuditLogTest, TheSameRefusalAgainIsCounted) {
  {
    const auto log = open({.linger = minutes(10)});
    for (int i = 0; i < 500; ++i) {
      log->add(refusal("10.0.0.1"));
      log->add(refusal("10.0.0.2"));
    }
  }
  const auto lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 2U);
  for (const std::string& line : lines) EXPECT_NE(line.find("\"repeated\":499"), std::string::npos) << line;
}

TEST_F(AuditLogTest, ManyThreadsWriteWholeLines) {
  {
    const auto log = open();
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (uint64_t i = 1; i <= 500; ++i) log->add(submission(t * 1'000 + i));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const auto lines = lines_of(path_);
  EXPECT_EQ(lines.size(), 2'000U);
  for (const std::string& line : lines) EXPECT_TRUE(line.starts_with("{\"time\":") && line.ends_with("}"));
}

}  // namespace
}  // namespace gpusched::audit
