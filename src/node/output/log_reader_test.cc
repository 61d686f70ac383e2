#include "node/output/log_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "node/output/log_retention.h"
#include "node/testing/attempt_key.h"
#include "node/testing/testing.h"

namespace gpusched {
namespace {

class LogReaderTest : public ::testing::Test {
 protected:
  LogReaderTest() : reader_(folder_.path()) { std::filesystem::create_directories(attempt()); }

  std::string attempt() const { return folder_.path() + "/attempts/7-1-0"; }
  void write_output(const std::string& text) {
    std::ofstream(attempt() + "/stdout", std::ios::app | std::ios::binary) << text;
  }
  static v1::ReadLog order(int64_t offset = 0, int64_t wait_ms = 0) {
    v1::ReadLog order;
    order.set_request(5);
    *order.mutable_key() = to_wire(kKey);
    order.set_offset(offset);
    order.set_wait_ms(wait_ms);
    return order;
  }
  v1::LogChunk answer() {
    wait_readable(reader_.event());
    std::vector<v1::LogChunk> chunks = reader_.take();
    EXPECT_EQ(chunks.size(), 1u);
    return chunks.empty() ? v1::LogChunk{} : chunks.front();
  }
  v1::LogChunk read(const v1::ReadLog& asked, AttemptLife life = AttemptLife::kRunning) {
    reader_.read(asked, life);
    return answer();
  }

  TemporaryFolder folder_;
  LogReader reader_;
};

TEST_F(LogReaderTest, APieceSaysWhereToGoOn) {
  write_output("0123456789");
  v1::ReadLog asked = order(3);
  asked.set_size_max(4);
  const v1::LogChunk chunk = read(asked);
  EXPECT_EQ(chunk.request(), 5u);
  EXPECT_EQ(chunk.data(), "3456");
  EXPECT_EQ(chunk.offset(), 3);
  EXPECT_EQ(chunk.next_offset(), 7);
  EXPECT_FALSE(chunk.at_end());
  EXPECT_TRUE(read(order(7), AttemptLife::kEnded).at_end());
}

TEST_F(LogReaderTest, AReadAtTheEndIsWokenByTheWriting) {
  write_output("a");
  reader_.read(order(1, 30'000), AttemptLife::kRunning);
  write_output("b");
  const v1::LogChunk chunk = answer();
  EXPECT_EQ(chunk.data(), "b");
  EXPECT_EQ(chunk.offset(), 1);
}

TEST_F(LogReaderTest, AReadThatWaitsIsToldTheEnd) {
  write_output("a");
  reader_.read(order(1, 30'000), AttemptLife::kRunning);
  reader_.ended(kKey);
  EXPECT_TRUE(answer().at_end());
}

TEST_F(LogReaderTest, PatienceEndsWithoutData) {
  write_output("a");
  const v1::LogChunk chunk = read(order(1, 20));
  EXPECT_EQ(chunk.data(), "");
  EXPECT_EQ(chunk.next_offset(), 1);
  EXPECT_FALSE(chunk.at_end());
}

TEST_F(LogReaderTest, AFileThatIsNotThereYetIsWaitedFor) {
  reader_.read(order(0, 30'000), AttemptLife::kRunning);
  write_output("now");
  EXPECT_EQ(answer().data(), "now");
}

TEST_F(LogReaderTest, AFollowedSearchAnswersWithWholeLines) {
  v1::ReadLog asked = order(0, 30'000);
  asked.set_grep("loss");
  write_output("epoch 1\nlo");
  reader_.read(asked, AttemptLife::kRunning);
  write_output("ss 0.5\n");
  const v1::LogChunk chunk = answer();
  EXPECT_EQ(chunk.data(), "loss 0.5\n");
  EXPECT_EQ(chunk.offset(), 8);
  EXPECT_EQ(chunk.next_offset(), 17);
}

TEST_F(LogReaderTest, ASearchThatIsNotFollowedTakesTheLastLineAsItIs) {
  v1::ReadLog asked = order();
  asked.set_grep("loss");
  write_output("epoch 1\nloss 0.5");
  EXPECT_EQ(read(asked).data(), "loss 0.5");
}

TEST_F(LogReaderTest, TailIsTheLastLines) {
  write_output("one\ntwo\nthree\n");
  v1::ReadLog asked = order(99);
  asked.set_tail_lines(2);
  const v1::LogChunk chunk = read(asked);
  EXPECT_EQ(chunk.data(), "two\nthree\n");
  EXPECT_EQ(chunk.offset(), 4);
}

TEST_F(LogReaderTest, WhatIsNoLongerKeptIsSaidAndPassedOver) {
  write_output(std::string(1 << 20, 'x') + "end");
  const int file = open((attempt() + "/stdout").c_str(), O_WRONLY);
  const bool cut = fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) == 0;
  close(file);
  if (!cut) GTEST_SKIP() << "this file system has no holes";
  const v1::LogChunk chunk = read(order(10));
  EXPECT_EQ(chunk.data(), "end");
  EXPECT_EQ(chunk.offset(), 1 << 20);
  EXPECT_EQ(chunk.skipped(), (1 << 20) - 10);
}

TEST_F(LogReaderTest, RemovedOutputIsToldWithTheTime) {
  write_output("x");
  LogRetention retention({.data_folder = folder_.path(), .kept = hours(48)});
  retention.ended(kKey, Time{} + hours(1));
  retention.enforce(Time{} + hours(49));
  const v1::LogChunk chunk = read(order(), AttemptLife::kEnded);
  EXPECT_EQ(chunk.code(), "log_removed");
  EXPECT_NE(chunk.error().find("removed by retention on 1970-01-03 01:00:00 UTC: older than 2 days"),
            std::string::npos)
      << chunk.error();
}

TEST_F(LogReaderTest, AnUnknownAttemptIsAnErrorAndAnEndedOneWithoutAFileIsEmpty) {
  EXPECT_EQ(read(order(0, 30'000), AttemptLife::kUnknown).code(), "log_not_found");
  const v1::LogChunk chunk = read(order(0, 30'000), AttemptLife::kEnded);
  EXPECT_EQ(chunk.code(), "");
  EXPECT_TRUE(chunk.at_end());
}

TEST_F(LogReaderTest, ForgottenReadsAreNotAnswered) {
  write_output("a");
  reader_.read(order(1, 50), AttemptLife::kRunning);
  reader_.forget_reads();
  const v1::LogChunk chunk = read(order(0));
  EXPECT_EQ(chunk.data(), "a");
  EXPECT_TRUE(reader_.take().empty());
}

}  // namespace
}  // namespace gpusched
