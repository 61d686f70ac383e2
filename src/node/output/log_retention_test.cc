#include "node/output/log_retention.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

class LogRetentionTest : public ::testing::Test {
 protected:
  AttemptKey make_attempt(uint64_t job, std::size_t bytes, bool over = false) const {
    const AttemptKey key{JobId{job}, 1, 0};
    const std::string path = folder(job);
    std::filesystem::create_directories(path);
    std::ofstream(path + "/stdout") << std::string(bytes, 'x');
    std::ofstream(path + "/stderr");
    if (over) std::ofstream(path + "/outcome") << "x";
    return key;
  }
  std::string folder(uint64_t job) const {
    return data_.path() + "/attempts/" + std::to_string(job) + "-1-0";
  }
  bool has_output(uint64_t job) const { return std::filesystem::exists(folder(job) + "/stdout"); }
  static Time at(int64_t hour) { return Time{} + hours(hour); }

  TemporaryFolder data_;
};

TEST_F(LogRetentionTest, OutputGoesWhenItIsTooOldAndItsFolderStays) {
  LogRetention retention({.data_folder = data_.path(), .kept = hours(10)});
  const AttemptKey key = make_attempt(1, 100);
  retention.ended(key, at(1));
  EXPECT_EQ(retention.enforce(at(8)), hours(1));
  retention.enforce(at(10));
  EXPECT_TRUE(has_output(1));
  retention.enforce(at(11));
  EXPECT_FALSE(has_output(1));
  EXPECT_TRUE(std::filesystem::exists(folder(1)));
  EXPECT_EQ(removed_log_note(data_.path(), key), "1970-01-01 11:00:00 UTC: older than 10 hours");
  EXPECT_EQ(retention.ended_bytes(), 0);
}

TEST_F(LogRetentionTest, OverTheQuotaTheOldestEndedGoesFirstAndNeverARunningOne) {
  LogRetention retention({.data_folder = data_.path(), .bytes_max = 3 << 20});
  retention.began(make_attempt(1, 2 << 20));
  retention.ended(make_attempt(2, 1 << 20), at(5));
  retention.ended(make_attempt(3, 1 << 20), at(4));
  retention.ended(make_attempt(4, 1 << 20), at(6));
  retention.enforce(at(7));
  EXPECT_TRUE(has_output(1));
  EXPECT_FALSE(has_output(3));
  EXPECT_FALSE(has_output(2));
  EXPECT_TRUE(has_output(4));
  make_attempt(1, 9 << 20);
  retention.enforce(at(8));
  EXPECT_FALSE(has_output(4));
  EXPECT_TRUE(has_output(1));
}

TEST_F(LogRetentionTest, WithoutLimitsNothingGoes) {
  LogRetention retention({.data_folder = data_.path()});
  retention.ended(make_attempt(1, 100), at(1));
  retention.enforce(at(100'000));
  EXPECT_TRUE(has_output(1));
}

TEST_F(LogRetentionTest, WhatAnEarlierAgentLeftCounts) {
  make_attempt(1, 1 << 20, true);
  make_attempt(2, 1 << 20);
  LogRetention retention({.data_folder = data_.path(), .bytes_max = 1 << 20});
  retention.look_around({}, at(1));
  retention.enforce(Time{INT64_MAX / 2});
  EXPECT_FALSE(has_output(1));
  EXPECT_TRUE(has_output(2));  // Without an outcome it may run.
}

TEST_F(LogRetentionTest, WhatAWrongClockDatedIsNotOldWhenThatIsSetRight) {
  // Files of an earlier agent: one from before the folder was, which cannot be, and one that is old.
  make_attempt(1, 100, true);
  make_attempt(2, 100, true);
  const auto file_time = [](int64_t hours_since_1970) {
    return std::filesystem::file_time_type::clock::from_sys(
        std::chrono::system_clock::time_point(std::chrono::hours(hours_since_1970)));
  };
  std::filesystem::last_write_time(folder(1) + "/outcome", file_time(2));
  std::filesystem::last_write_time(folder(2) + "/outcome", file_time(1'010));
  LogRetention retention({.data_folder = data_.path(), .kept = hours(10)});
  retention.look_around(at(1'000), at(5));  // The clock of now is still wrong.
  retention.ended(make_attempt(3, 100), at(6));
  retention.enforce(at(7), false);
  retention.shift(hours(2'000));
  retention.enforce(at(2'007));
  EXPECT_TRUE(has_output(1));
  EXPECT_FALSE(has_output(2));
  EXPECT_TRUE(has_output(3));
  retention.enforce(at(2'015));
  EXPECT_FALSE(has_output(1));
  EXPECT_TRUE(has_output(3));
  retention.enforce(at(2'016));
  EXPECT_FALSE(has_output(3));
}

TEST_F(LogRetentionTest, AForgottenAttemptIsNotedWhenItHadOutput) {
  LogRetention retention({.data_folder = data_.path()});
  const AttemptKey loud = make_attempt(1, 100);
  const AttemptKey quiet = make_attempt(2, 0);
  retention.ended(loud, at(1));
  retention.ended(quiet, at(1));
  retention.forgot(loud, at(2), "why");
  retention.forgot(quiet, at(2), "why");
  EXPECT_EQ(removed_log_note(data_.path(), loud), "1970-01-01 02:00:00 UTC: why");
  EXPECT_EQ(removed_log_note(data_.path(), quiet), "");
}

}  // namespace
}  // namespace gpusched
