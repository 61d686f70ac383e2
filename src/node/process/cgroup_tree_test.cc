// Places and files on made-up machines: plain folders that look like cgroups.
#include "node/process/cgroup_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "node/ports/system_clock.h"
#include "node/process/core_pool.h"
#include "node/process/device_rules.h"
#include "node/process/user_directory.h"
#include "node/testing/testing.h"

namespace gpusched {
namespace {

constexpr const char* kName = "gpusched-abc";

class CgroupTreeTest : public ::testing::Test {
 protected:
  /// A cgroup with these files; the kernel would make them in our own folder, too.
  void make(const std::string& path, const std::vector<std::pair<std::string, std::string>>& files = {}) {
    for (const std::string& folder : {path, path + "/" + kName}) {
      std::filesystem::create_directories(root_.path() + folder);
      std::ofstream(root_.path() + folder + "/cgroup.procs") << "";
      for (const auto& [name, text] : files) std::ofstream(root_.path() + folder + "/" + name) << text;
    }
  }
  CgroupTree detect(const std::string& mountinfo, const std::string& memberships) const {
    return CgroupTree::detect(
        {.mountinfo = mountinfo, .memberships = memberships, .name = kName, .root = root_.path()});
  }
  std::string setting(const shim::Box& box, const std::string& file) const {
    for (const shim::CgroupFolder& folder : box.cgroups) {
      for (const shim::CgroupSetting& setting : folder.settings) {
        if (setting.file == file) return setting.value;
      }
    }
    return "none";
  }
  TemporaryFolder root_;
};

TEST_F(CgroupTreeTest, Version1UsesEachControllerWhereItIs) {
  make("/cg/memory/box");
  make("/cg/cpu,cpuacct");
  make("/cg/cpuset", {{"cpuset.cpus", "0-3\n"}, {"cpuset.mems", "0\n"}});
  make("/cg/pids");
  make("/cg/devices/system.slice");
  make("/cg/freezer");
  const CgroupTree tree = detect(
      "1 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n"
      "2 0 0:2 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "3 0 0:3 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n"
      "4 0 0:4 / /cg/pids rw - cgroup cgroup rw,pids\n"
      "5 0 0:5 / /cg/devices rw - cgroup cgroup rw,devices\n"
      "6 0 0:6 / /cg/freezer rw - cgroup cgroup rw,freezer\n",
      "6:memory:/box\n5:cpu,cpuacct:/\n4:cpuset:/\n3:pids:/\n2:devices:/system.slice/"
      "gpu-agent.service\n1:freezer:/\n");
  EXPECT_EQ(tree.feature(), "cgroup:v1");
  EXPECT_TRUE(tree.limits());
  shim::Box box;
  tree.fill("1-1-0",
            {.memory_bytes = 1 << 20,
             .cpu_milli = 1'500,
             .cpu_is_most = true,
             .cpus = {1, 2},
             .processes = 9,
             .devices = std::vector<shim::DeviceRule>{{.major = 1, .minor = 3, .make = false}}},
            box);
  EXPECT_EQ(setting(box, "memory.limit_in_bytes"), "1048576");
  EXPECT_EQ(setting(box, "cpu.shares"), "1536");
  EXPECT_EQ(setting(box, "cpu.cfs_quota_us"), "150000");
  EXPECT_EQ(setting(box, "cpuset.cpus"), "1-2");
  EXPECT_EQ(setting(box, "cpuset.mems"), "0");
  EXPECT_EQ(setting(box, "pids.max"), "9");
  EXPECT_EQ(setting(box, "devices.deny"), "a");
  EXPECT_EQ(setting(box, "devices.allow"), "c 1:3 rw");
  EXPECT_FALSE(box.fence_by_program);
  EXPECT_EQ(tree.folders_of("1-1-0").front(), root_.path() + "/cg/freezer/gpusched-abc/1-1-0");
  bool outside_the_unit = false;
  for (const shim::CgroupFolder& folder : box.cgroups) {
    outside_the_unit |= folder.path == root_.path() + "/cg/devices/system.slice/gpusched-abc/1-1-0";
  }
  EXPECT_TRUE(outside_the_unit);
}

TEST_F(CgroupTreeTest, DeviceRulesAreWrittenAsTheyAreRead) {
  make("/cg/devices");
  const CgroupTree tree = detect("5 0 0:5 / /cg/devices rw - cgroup cgroup rw,devices\n", "2:devices:/\n");
  std::vector<shim::DeviceRule> rules = common_device_rules();
  rules.push_back({.block = true, .major = INT32_MAX, .minor = INT32_MAX, .write = false});
  rules.push_back({.major = 0, .minor = 0, .read = false, .make = false});
  shim::Box box;
  tree.fill("1-1-0", {.devices = rules}, box);
  std::vector<shim::DeviceRule> written;
  for (const shim::CgroupSetting& setting : box.cgroups.at(0).settings) {
    if (setting.file != "devices.allow") continue;
    const auto rule = parse_device_rule(setting.value);
    ASSERT_TRUE(rule) << setting.value;
    written.push_back(*rule);
  }
  EXPECT_EQ(written, rules);
}

TEST_F(CgroupTreeTest, Version2HasOneGroupAndFencesByProgram) {
  make("/cg", {{"cgroup.controllers", "cpuset cpu io memory pids\n"}, {"cgroup.subtree_control", ""}});
  // In a plain file what is asked for is written over the beginning; the kernel's answer stands behind that.
  std::ofstream(root_.path() + "/cg/gpusched-abc/cgroup.subtree_control")
      << "........ cpuset cpu memory pids\n";
  const CgroupTree tree = detect("1 0 0:1 / /cg rw - cgroup2 cgroup rw\n", "0::/\n");
  EXPECT_EQ(tree.feature(), "cgroup:v2");
  shim::Box box;
  tree.fill(
      "1-1-0",
      {.memory_bytes = 4096, .cpu_milli = 1'000, .processes = 9, .devices = std::vector<shim::DeviceRule>{}},
      box);
  ASSERT_EQ(box.cgroups.size(), 1u);
  EXPECT_EQ(setting(box, "memory.max"), "4096");
  EXPECT_EQ(setting(box, "memory.oom.group"), "1");
  EXPECT_EQ(setting(box, "cpu.weight"), "39");
  EXPECT_TRUE(box.fence_by_program);
}

TEST_F(CgroupTreeTest, OnAHybridMachineTheVersion2GroupIsWhatIsKilledBy) {
  make("/cg/memory");
  make("/cg/unified");
  const CgroupTree tree = detect(
      "1 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n2 0 0:2 / /cg/unified rw - cgroup2 cgroup2 rw\n",
      "1:memory:/\n0::/\n");
  EXPECT_EQ(tree.feature(), "cgroup:v1");
  EXPECT_TRUE(tree.can_fence());
  shim::Box box;
  tree.fill("1-1-0", {}, box);
  ASSERT_EQ(box.cgroups.size(), 1u);
  EXPECT_TRUE(box.cgroups.front().unified);
}

TEST_F(CgroupTreeTest, InAContainerOurOwnPlaceIsTheMountsRoot) {
  make("/cg/pids");
  const CgroupTree tree =
      detect("1 0 0:1 /docker/abc /cg/pids rw - cgroup cgroup rw,pids\n", "1:pids:/docker/abc\n");
  EXPECT_TRUE(tree.has(Controller::kPids));
  EXPECT_EQ(tree.feature(), "cgroup:none");
}

TEST_F(CgroupTreeTest, NothingMountedIsNothingUsed) {
  const CgroupTree tree = detect("1 0 0:1 / / rw - ext4 /dev/vda rw\n", "0::/\n");
  EXPECT_EQ(tree.feature(), "cgroup:none");
  EXPECT_FALSE(tree.notes().empty());
  shim::Box box;
  tree.fill("1-1-0", {.memory_bytes = 1, .devices = std::vector<shim::DeviceRule>{}}, box);
  EXPECT_TRUE(box.cgroups.empty());
  EXPECT_FALSE(box.fence_by_program);
}

TEST(Cores, AreReadAndWrittenAsTheKernelDoes) {
  EXPECT_EQ(parse_cores("0-2,7\n"), (std::vector<uint32_t>{0, 1, 2, 7}));
  EXPECT_EQ(format_cores({0, 1, 2, 7}), "0-2,7");
  for (const char* text : {"", "a", "1-", "3-1", "1,,x", "-1"})
    EXPECT_TRUE(parse_cores(text).empty()) << text;
}

TEST(CorePool, GivesNearCoresFirstAndNoneTwice) {
  CorePool pool({0, 1, 2, 3});
  const AttemptKey a{JobId{1}, 1, 0};
  const AttemptKey b{JobId{2}, 1, 0};
  const AttemptKey c{JobId{3}, 1, 0};
  EXPECT_EQ(pool.take(a, 2, {2, 3}), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(pool.take(b, 1, {3}), (std::vector<uint32_t>{0}));
  EXPECT_TRUE(pool.take(c, 2, {}).empty());
  pool.give_back(a);
  EXPECT_EQ(pool.take(c, 2, {}), (std::vector<uint32_t>{1, 2}));
}

TEST(CorePool, KeepsWhatAnEarlierAgentGave) {
  CorePool pool({0, 1});
  pool.keep({JobId{1}, 1, 0}, {1, 9});
  EXPECT_EQ(pool.take({JobId{2}, 1, 0}, 1, {1}), (std::vector<uint32_t>{0}));
  pool.give_back({JobId{1}, 1, 0});
  EXPECT_EQ(pool.free_count(), 1u);
}

TEST(DeviceRules, AreReadInTheKernelsWords) {
  EXPECT_EQ(parse_device_rule("c 10:237 rw"), (shim::DeviceRule{.major = 10, .minor = 237, .make = false}));
  EXPECT_EQ(parse_device_rule("b *:*"), (shim::DeviceRule{.block = true}));
  EXPECT_EQ(parse_device_rule("/dev/null"), (shim::DeviceRule{.major = 1, .minor = 3}));
  for (const char* text : {"", "c", "x 1:2 r", "c 1 r", "c 1:2 q", "c -1:2 r", "/no/such"}) {
    EXPECT_FALSE(parse_device_rule(text).has_value()) << text;
  }
}

TEST(DeviceRules, AGpusPlaceIsReadFromItsDriver) {
  const TemporaryFolder root;
  const std::string gpu = root.path() + "/proc/driver/nvidia/gpus/0000:3b:00.0";
  const std::string bus = root.path() + "/sys/bus/pci/devices/0000:3b:00.0";
  const std::string mig = root.path() + "/proc/driver/nvidia/capabilities/gpu2/mig/gi1";
  const std::string other = root.path() + "/proc/driver/nvidia/capabilities/gpu2/mig/gi3";
  for (const std::string& folder : {gpu, bus, mig + "/ci0", other})
    std::filesystem::create_directories(folder);
  std::ofstream(gpu + "/information")
      << "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-11\nBus Location: \t 0000:3b:00.0\n"
         "Device Minor: \t 2\n";
  std::ofstream(bus + "/local_cpulist") << "0-1\n";
  std::ofstream(mig + "/access") << "DeviceFileMinor: 12\nDeviceFileMode: 292\n";
  std::ofstream(mig + "/ci0/access") << "DeviceFileMinor: 13\nDeviceFileMode: 292\n";
  std::ofstream(other + "/access") << "DeviceFileMinor: 30\nDeviceFileMode: 292\n";
  std::ofstream(root.path() + "/proc/devices")
      << "Character devices:\n195 nvidia\n234 nvidia-caps\n510 nvidia-uvm\n";
  const std::map<std::string, GpuPlace> places = find_gpu_places(root.path());
  ASSERT_TRUE(places.contains("GPU-11"));
  EXPECT_EQ(places.at("GPU-11").minor, 2);
  EXPECT_EQ(places.at("GPU-11").cores, (std::vector<uint32_t>{0, 1}));
  const std::vector<shim::DeviceRule> rules =
      nvidia_device_rules(std::vector<NvidiaGrant>{{.minor = 2}}, root.path());
  EXPECT_NE(std::find(rules.begin(), rules.end(), shim::DeviceRule{.major = 195, .minor = 2}), rules.end());
  EXPECT_NE(std::find(rules.begin(), rules.end(), shim::DeviceRule{.major = 510}), rules.end());
  EXPECT_NE(std::find(rules.begin(), rules.end(), shim::DeviceRule{.major = 234, .minor = 12}), rules.end());
  EXPECT_EQ(std::find(rules.begin(), rules.end(), shim::DeviceRule{.major = 195, .minor = 1}), rules.end());
  EXPECT_NE(std::find(rules.begin(), rules.end(), shim::DeviceRule{.major = 234, .minor = 30}), rules.end());
  EXPECT_TRUE(nvidia_device_rules({}, root.path()).empty());

  const NvidiaGrant slice{.minor = 2, .gpu_instance = 1, .compute_instance = 0};
  EXPECT_EQ(mig_minors(slice, root.path()), (std::vector<int32_t>{12, 13}));
  const std::vector<shim::DeviceRule> of_slice = nvidia_device_rules({slice}, root.path());
  const auto allows = [&](int32_t major, int32_t minor) {
    return std::find(of_slice.begin(), of_slice.end(), shim::DeviceRule{.major = major, .minor = minor}) !=
           of_slice.end();
  };
  EXPECT_TRUE(allows(195, 2));
  EXPECT_TRUE(allows(234, 13));
  EXPECT_FALSE(allows(234, 30));
}

TEST(ChooseUser, RulesOfRootAndPlainAgents) {
  const SystemClock clock;
  UserDirectory directory(clock, [](const std::string& name) -> Result<UserFacts> {
    if (name == "root") return UserFacts{.name = "root"};
    if (name == "ada") return UserFacts{.name = "ada", .credentials = {.uid = 1'000, .gid = 100}};
    return Error{.code = ErrorCode::kNotFound, .message = "none"};
  });
  UserPolicy root{.is_root = true, .own_name = "root"};
  EXPECT_EQ(choose_user("ada", root, directory)->credentials.uid, 1'000u);
  EXPECT_FALSE(choose_user("", root, directory).ok());
  EXPECT_FALSE(choose_user("root", root, directory).ok());
  EXPECT_FALSE(choose_user("bob", root, directory).ok());
  root.default_user = "ada";
  EXPECT_EQ(choose_user("", root, directory)->name, "ada");
  root = {.is_root = true, .own_name = "root", .allow_root_jobs = true};
  EXPECT_EQ(choose_user("", root, directory)->name, "root");
  const UserPolicy plain{.own_name = UserDirectory::own().name};
  EXPECT_TRUE(choose_user("", plain, directory).ok());
  EXPECT_TRUE(choose_user(plain.own_name, plain, directory).ok());
  EXPECT_FALSE(choose_user("somebody-else", plain, directory).ok());
}

}  // namespace
}  // namespace gpusched
