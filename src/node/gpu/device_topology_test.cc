#include "node/gpu/device_topology.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

/// Eight GPUs on NVSwitch with network cards beside them, as a DGX A100 shows them.
constexpr const char* kDgxA100 =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA "
    "Affinity\x1b[0m\n"
    "GPU0\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tPXB\tPXB\t48-63,176-191\t3\n"
    "GPU1\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tPXB\tPXB\t48-63,176-191\t3\n"
    "GPU2\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tSYS\tSYS\t16-31,144-159\t1\n"
    "GPU3\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tSYS\tSYS\t16-31,144-159\t1\n"
    "GPU4\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tSYS\tSYS\t112-127,240-255\t7\n"
    "GPU5\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tSYS\tSYS\t112-127,240-255\t7\n"
    "GPU6\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tSYS\tSYS\t80-95,208-223\t5\n"
    "GPU7\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tSYS\tSYS\t80-95,208-223\t5\n"
    "mlx5_0\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tPIX\t\t\n"
    "mlx5_1\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tPIX\t X \t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n";

constexpr const char* kFourPcie =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPIX\tSYS\tSYS\t0-15\t0\t\tN/A\n"
    "GPU1\tPIX\t X \tSYS\tSYS\t0-15\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tPHB\t16-31\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tPHB\t X \t16-31\t1\t\tN/A\n";

constexpr const char* kSingle =
    "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\tN/A\t\tN/A\n\nLegend:\n";

Link link_of(const DeviceTopology& topology, std::size_t a, std::size_t b, std::size_t devices) {
  return Link::of(topology.links.at(pair_index(a, b, devices)));
}

TEST(SmiTopology, ADgxIsOneIslandWithFourNumaNodes) {
  const auto topology = smi::topology_of(kDgxA100, 8, "NVIDIA A100-SXM4-80GB");
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  EXPECT_EQ(topology->links.size(), 28u);
  EXPECT_EQ(link_of(*topology, 0, 7, 8), (Link{.kind = LinkKind::kNvlink, .gbs = 300}));
  EXPECT_EQ(topology->numa_nodes, (std::vector<std::optional<int32_t>>{3, 3, 1, 1, 7, 7, 5, 5}));
  EXPECT_EQ(topology->note, "nvidia-smi topo -m");
}

TEST(SmiTopology, NvlinksOfBlackwellCarryMore) {
  const auto topology =
      smi::topology_of("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n", 2, "NVIDIA B200");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(link_of(*topology, 0, 1, 2).gbs, 900);
  EXPECT_EQ(nvlink_gbs_of("NVIDIA H100 80GB HBM3"), 25);
  EXPECT_EQ(nvlink_gbs_of("Tesla P100-SXM2-16GB"), 20);
}

TEST(SmiTopology, PcieKindsHaveTheirUsualBandwidths) {
  const auto topology = smi::topology_of(kFourPcie, 4, "NVIDIA A30");
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  EXPECT_EQ(link_of(*topology, 0, 1, 4).kind, LinkKind::kSwitch);
  EXPECT_EQ(link_of(*topology, 2, 3, 4).kind, LinkKind::kHostBridge);
  EXPECT_EQ(link_of(*topology, 1, 2, 4), (Link{.kind = LinkKind::kSystem, .gbs = 10}));
  EXPECT_EQ(topology->numa_nodes, (std::vector<std::optional<int32_t>>{0, 0, 1, 1}));
}

TEST(SmiTopology, OneGpuHasNoLinksAndAnUnknownNumaNode) {
  const auto topology = smi::topology_of(kSingle, 1, "NVIDIA L4");
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  EXPECT_TRUE(topology->links.empty());
  EXPECT_EQ(topology->numa_nodes, (std::vector<std::optional<int32_t>>{std::nullopt}));
}

TEST(SmiTopology, WhatDoesNotFitIsNotBelieved) {
  const std::string whole = kFourPcie;
  EXPECT_FALSE(smi::topology_of("", 4, "").ok());
  EXPECT_FALSE(smi::topology_of("NVIDIA-SMI has failed because it couldn't communicate", 4, "").ok());
  EXPECT_FALSE(smi::topology_of(whole, 3, "").ok());
  EXPECT_FALSE(smi::topology_of(whole, 8, "").ok());
  EXPECT_FALSE(smi::topology_of(whole.substr(0, whole.size() - 60), 4, "").ok());
  const auto with = [&](const char* from, const char* to) {
    std::string text = whole;
    return smi::topology_of(text.replace(text.find(from), std::string(from).size(), to), 4, "");
  };
  EXPECT_FALSE(with("PIX", "QPI").ok());
  EXPECT_FALSE(with("PIX", "PHB").ok());  // Not the same there and back.
  EXPECT_FALSE(with("PIX", "NV0").ok());
  EXPECT_FALSE(with("PIX", "NV99999999999999999999").ok());
  EXPECT_FALSE(with("GPU2\tSYS", "GPU9\tSYS").ok());
  EXPECT_EQ(with("PIX", "QPI").error().message,
            "nvidia-smi topo -m has an unknown kind of link between GPUs");
}

TEST(SimLinks, IslandsAreJoinedByNvlinkAndLieOnNumaNodesOfTheirOwn) {
  const auto topology = parse_sim_links("2,1", 3);
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(link_of(*topology, 0, 1, 3), (Link{.kind = LinkKind::kNvlink, .gbs = 300}));
  EXPECT_EQ(link_of(*topology, 0, 2, 3), (Link{.kind = LinkKind::kSystem, .gbs = 10}));
  EXPECT_EQ(topology->numa_nodes, (std::vector<std::optional<int32_t>>{0, 0, 1}));
  for (const char* wrong : {"", "2", "2,2", "3,0", "a", "2,1,", "-1,4", "99999999999,3"})
    EXPECT_FALSE(parse_sim_links(wrong, 3).ok()) << wrong;
}

}  // namespace
}  // namespace gpusched
