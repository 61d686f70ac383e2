#include "pilot/records.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace gpusched::pilot {
namespace {

class Records : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "pilot-records-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

PilotState some_state() {
  PilotState state;
  state.memory.last_number = 7;
  state.memory.leases.push_back(
      {.number = 7,
       .request = {.gpus = 2, .gpu_model = "H100", .memory_gb = 80, .length = minutes(10)},
       .rules = {"a", "b"},
       .asked_at = Time{1},
       .ready_at = Time{2},
       .expires_at = Time{3},
       .used_at = Time{4},
       .needed_at = Time{5},
       .counted_to = Time{6},
       .is_released = true});
  state.memory.learning = anticipate::Learning({{"a", {.hits = 3, .misses = 1}}});
  state.memory.spent_hour = 99;
  state.memory.spent_gpu_seconds.at(23) = 5;
  state.leases[7] = {.key = "k", .remote = {.id = "u", .job = "job-1"}, .extensions = 2};
  return state;
}

TEST_F(Records, OutliveTheProcess) {
  const Result<StateFolder> folder = StateFolder::open(folder_ + "/a/b");
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_TRUE(folder->load()->memory.leases.empty());
  ASSERT_TRUE(folder->save(some_state()).ok());
  const Result<PilotState> read = read_state(folder_ + "/a/b");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(state_json(*read), state_json(some_state()));
  EXPECT_EQ(read->leases.at(7).remote.job, "job-1");
  EXPECT_EQ(read->memory.leases.at(0).rules.size(), 2U);
  struct stat facts{};
  ASSERT_EQ(::stat((folder_ + "/a/b/state.json").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
}

TEST_F(Records, AreOfOnePilotAndNobodyElse) {
  const Result<StateFolder> folder = StateFolder::open(folder_);
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(StateFolder::open(folder_).error().code, ErrorCode::kLocked);
  const std::string open = folder_ + "/open";
  std::filesystem::create_directory(open);
  ASSERT_EQ(::chmod(open.c_str(), 0755), 0);
  EXPECT_EQ(StateFolder::open(open).error().code, ErrorCode::kPermissionDenied);
}

TEST_F(Records, ThatAreNoneAreRefused) {
  std::ofstream(folder_ + "/state.json") << "[]";
  EXPECT_EQ(read_state(folder_).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace gpusched::pilot
