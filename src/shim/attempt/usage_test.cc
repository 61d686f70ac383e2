#include "shim/attempt/usage.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gpusched::shim {
namespace {

class MeasuredUsageTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/usage_" + std::to_string(getpid());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  /// A folder with the files that a group of that hierarchy has.
  CgroupFolder group(const std::string& hierarchy, bool unified, std::vector<CgroupSetting> settings = {}) {
    const std::string path = root_ + '/' + hierarchy;
    std::filesystem::create_directories(path);
    return {.path = path, .unified = unified, .settings = std::move(settings)};
  }
  void write(const std::string& file, const std::string& text) { std::ofstream(root_ + '/' + file) << text; }

  std::string root_;
};

TEST_F(MeasuredUsageTest, IsReadWhereEachControllerIs) {
  const Box box{.cgroups = {group("cpu", false, {{.file = "cpu.shares", .value = "1024"}}),
                            group("memory", false, {{.file = "memory.limit_in_bytes", .value = "100"}}),
                            group("pids", false), group("unified", true)}};
  write("memory/memory.max_usage_in_bytes", "425984\n");
  write("unified/cpu.stat", "user_usec 2000\nusage_usec 3098\n");
  EXPECT_EQ(measure_usage(box, true), (MeasuredUsage{.peak_memory_bytes = 425'984, .cpu_ns = 3'098'000}));
}

TEST_F(MeasuredUsageTest, IsReadOfVersion2Alone) {
  const Box box{.cgroups = {group("unified", true, {{.file = "memory.max", .value = "100"}})}};
  write("unified/memory.peak", "77\n");
  write("unified/cpu.stat", "usage_usec 5\n");
  EXPECT_EQ(measure_usage(box, true), (MeasuredUsage{.peak_memory_bytes = 77, .cpu_ns = 5'000}));
}

TEST_F(MeasuredUsageTest, IsReadOfGroupsWithoutALimit) {
  const Box box{.cgroups = {group("pids", false), group("cpu,cpuacct,memory", false)}};
  write("cpu,cpuacct,memory/memory.max_usage_in_bytes", "12\n");
  write("cpu,cpuacct,memory/cpuacct.usage", "34\n");
  EXPECT_EQ(measure_usage(box, true), (MeasuredUsage{.peak_memory_bytes = 12, .cpu_ns = 34}));
}

}  // namespace
}  // namespace gpusched::shim
