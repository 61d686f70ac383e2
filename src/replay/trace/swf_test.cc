#include "replay/trace/swf.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

namespace gpusched::replay {
namespace {

constexpr const char* kHeader =
    "; Version: 2.2\n; UnixStartTime: 843480031\n; MaxProcs: 100\n; Note: MaxNodes is no limit\n\n";
constexpr const char* kFirst =
    "    1        0 964980  97225   56     -1    -1   56 210000    -1  1   7   3  -1 5 -1 -1 -1\n";

class SwfTest : public ::testing::Test {
 protected:
  SwfTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "swf.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~SwfTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string path = (folder_ / "trace.swf").string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string write_gzip(const std::string& text) {
    const std::string path = (folder_ / "trace.swf.gz").string();
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path;
  }
  void expect_broken(const std::string& text, const std::string& what) {
    const Result<Trace> trace = read_swf(write(text));
    ASSERT_FALSE(trace.ok());
    EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(trace.error().message.find(what), std::string::npos) << trace.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(SwfTest, AJobHasItsFieldsAndTheHeaderItsCapacity) {
  const Result<Trace> trace = read_swf(write(std::string(kHeader) + kFirst));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->capacity, 100);
  EXPECT_EQ(trace->start_unix_s, 843480031);
  ASSERT_EQ(trace->jobs.size(), 1u);
  const TraceJob& job = trace->jobs.front();
  EXPECT_EQ(job.id, 1u);
  EXPECT_EQ(job.submitted, seconds(0));
  EXPECT_EQ(job.run, seconds(97225));
  EXPECT_EQ(job.size, 56);
  EXPECT_EQ(job.requested, seconds(210000));
  EXPECT_EQ(job.user, 7u);
  EXPECT_EQ(job.group, 3u);
  EXPECT_EQ(job.executable, 0u);
  EXPECT_EQ(job.queue, 5u);
}

TEST_F(SwfTest, GzipReadsLikePlain) {
  const Result<Trace> trace = read_swf(write_gzip(std::string(kHeader) + kFirst));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->jobs.size(), 1u);
}

TEST_F(SwfTest, ATornGzipFileIsAnError) {
  std::string text = kHeader;
  for (int i = 0; i < 2000; ++i) text += kFirst;
  const std::string path = write_gzip(text);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  const Result<Trace> trace = read_swf(path);
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
}

TEST_F(SwfTest, WhatNeverRanIsCountedAndLeftOut) {
  const Result<Trace> trace =
      read_swf(write("1 0 5 -1 -1 -1 -1 4 60 -1 5 1 1 -1 1 -1 -1 -1\n"
                     "2 3 5 9 2 0.5 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1\r\n"));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->skipped, 1u);
  ASSERT_EQ(trace->jobs.size(), 1u);
  EXPECT_EQ(trace->jobs[0].size, 2);  // The allocated ones, where nothing was requested.
  EXPECT_EQ(trace->jobs[0].requested, seconds(0));
}

TEST_F(SwfTest, ABrokenLineIsAnErrorWithItsNumber) {
  expect_broken(std::string(kHeader) + kFirst + "2 0 5\n", ":7: has 3 fields");
  expect_broken("1 0 5 x 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n", ":1: field 4 is not a number: x");
  expect_broken("1 0 5 9 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1 7\n", ":1: has more than 18 fields");
  expect_broken("1 0 5 -9 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n", ":1: field 4 is below -1");
  expect_broken("1 9 5 9 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n2 8 5 9 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n",
                ":2: was submitted before the job above it");
  expect_broken("1 0 5 99999999999 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n", ":1: a time is missing or longer");
  expect_broken(std::string(70'000, ' ') + "\n", ":1: the line is longer");
  expect_broken(std::string("1 0\0 5\n", 7), ":1: a zero byte");
}

TEST_F(SwfTest, AFileThatIsNotThereIsNamed) {
  const Result<Trace> trace = read_swf((folder_ / "none.swf").string());
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.error().code, ErrorCode::kNotFound);
  EXPECT_NE(trace.error().message.find("none.swf"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::replay
