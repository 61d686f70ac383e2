#include "node/kubernetes/node_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "node/gpu/device_topology.h"

namespace gpusched::kubernetes {
namespace {

namespace fs = std::filesystem;

/// A folder that looks like a machine's /sys; removed at its end.
class Machine {
 public:
  Machine() {
    char name[] = "/tmp/gpusched-sys-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Machine() { fs::remove_all(root_); }
  void module(const std::string& name) const { fs::create_directories(root_ + "/sys/module/" + name); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  void port(const std::string& adapter, int number, const std::string& state, const std::string& rate) const {
    const std::string at = "/sys/class/infiniband/" + adapter + "/ports/" + std::to_string(number);
    write(at + "/state", state);
    write(at + "/rate", rate);
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

TEST(MachineFacts, AMachineWithoutAnythingSaysSo) {
  const Machine machine;
  const MachineFacts facts = read_machine_facts(machine.root());
  EXPECT_EQ(facts.driver, "");
  EXPECT_TRUE(facts.adapters.empty());
  EXPECT_FALSE(facts.rdma);
  EXPECT_FALSE(facts.cu_file);
}

TEST(MachineFacts, AdaptersCountThePortsThatAreActive) {
  const Machine machine;
  machine.write("/sys/module/nvidia/version", "570.86.15");
  machine.port("mlx5_1", 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
  machine.port("mlx5_0", 1, "4: ACTIVE", "100 Gb/sec (4X EDR)");
  machine.port("mlx5_0", 2, "1: DOWN", "400 Gb/sec (4X NDR)");
  const MachineFacts facts = read_machine_facts(machine.root());
  EXPECT_EQ(facts.driver, "570.86.15");
  const std::vector<RdmaAdapter> expected = {{.name = "mlx5_0", .active_ports = 1, .gbps = 100},
                                             {.name = "mlx5_1", .active_ports = 1, .gbps = 200}};
  EXPECT_EQ(facts.adapters, expected);
}

TEST(MachineFacts, RdmaNeedsAnActiveAdapterAndTheModule) {
  const Machine machine;
  machine.port("mlx5_0", 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
  EXPECT_FALSE(read_machine_facts(machine.root()).rdma);
  machine.module("nvidia_peermem");
  machine.module("nvidia_fs");
  const MachineFacts with_modules = read_machine_facts(machine.root());
  EXPECT_TRUE(with_modules.rdma);
  EXPECT_TRUE(with_modules.cu_file);
  machine.port("mlx5_0", 1, "1: DOWN", "200 Gb/sec (4X HDR)");
  EXPECT_FALSE(read_machine_facts(machine.root()).rdma);
}

TEST(Islands, DevicesOfOneSwitchAreOneIslandWithBothDirectionsTogether) {
  const auto topology = parse_sim_links("4,4", 8);
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  const std::vector<DeviceIsland> islands = islands_of(*topology, 8);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(islands[i].name, i < 4 ? "island-0" : "island-1") << i;
    EXPECT_EQ(islands[i].gbs_both_ways, 2 * Link::of(topology->links[0]).gbs) << i;
  }
}

TEST(Islands, ADeviceThatIsReachedOverAThirdOneIsNoNeighbour) {
  // 0 - 1 - 2, and nothing between 0 and 2.
  const auto nvlink = [](int64_t gbs) { return Link{.kind = LinkKind::kNvlink, .gbs = gbs}.code(); };
  const DeviceTopology topology{
      .links = {nvlink(50), Link{.kind = LinkKind::kSystem, .gbs = 10}.code(), nvlink(25)},
      .numa_nodes = {},
      .note = {}};
  const std::vector<DeviceIsland> expected = {
      {.name = "island-0", .gbs_both_ways = 100}, {.name = "island-0", .gbs_both_ways = 100}, {}};
  EXPECT_EQ(islands_of(topology, 3), expected);
}

TEST(Islands, TheSlowestLinkOfAnIslandCounts) {
  const auto nvlink = [](int64_t gbs) { return Link{.kind = LinkKind::kNvlink, .gbs = gbs}.code(); };
  const DeviceTopology topology{.links = {nvlink(50), nvlink(25), nvlink(25)}, .numa_nodes = {}, .note = {}};
  for (const DeviceIsland& island : islands_of(topology, 3)) EXPECT_EQ(island.gbs_both_ways, 50);
}

TEST(Islands, UnknownLinksMakeNone) {
  EXPECT_EQ(islands_of(DeviceTopology{}, 2), std::vector<DeviceIsland>(2));
  EXPECT_TRUE(islands_of(DeviceTopology{}, 0).empty());
}

}  // namespace
}  // namespace gpusched::kubernetes
