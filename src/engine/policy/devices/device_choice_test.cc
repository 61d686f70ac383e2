#include "engine/policy/devices/device_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "base/prng.h"
#include "engine/policy/policies.h"

namespace gpusched::policy {
namespace {

/// A node whose devices lie on islands of these sizes, with 300 GB/s within and 16 between them.
Node node_of(const std::vector<int>& islands, int numa_size = 0) {
  Node node;
  std::vector<int> island_of;
  for (std::size_t i = 0; i < islands.size(); ++i)
    island_of.insert(island_of.end(), static_cast<std::size_t>(islands[i]), static_cast<int>(i));
  node.devices.resize(island_of.size());
  for (std::size_t a = 0; a < island_of.size(); ++a) {
    if (numa_size > 0) node.devices[a].numa_node = static_cast<int>(a) / numa_size;
    for (std::size_t b = a + 1; b < island_of.size(); ++b) {
      const bool same = island_of[a] == island_of[b];
      node.links.push_back(
          Link{.kind = same ? LinkKind::kNvlink : LinkKind::kNuma, .gbs = same ? 300 : 16}.code());
    }
  }
  return node;
}

/// The best weakest link of all sets of so many devices, by trying all.
int64_t best_weakest(const LinkMap& links, uint64_t usable, int count, bool contiguous) {
  int64_t best = -1;
  for (uint64_t mask = 0; mask < (uint64_t{1} << links.size()); ++mask) {
    if ((mask & ~usable) != 0 || std::popcount(mask) != count) continue;
    const uint64_t run = mask >> std::countr_zero(mask);
    if (contiguous && (run & (run + 1)) != 0) continue;
    int64_t weakest = count < 2 ? 0 : INT64_MAX;
    for (std::size_t a = 0; a < links.size(); ++a) {
      for (std::size_t b = a + 1; b < links.size(); ++b) {
        if (((mask >> a) & (mask >> b) & 1) != 0) weakest = std::min(weakest, links.between(a, b).gbs);
      }
    }
    best = std::max(best, weakest);
  }
  return best;
}

TEST(DeviceChoice, PackStaysOnOneIslandAndTakesTheTightest) {
  const Node node = node_of({4, 4});
  const LinkMap links(node);
  EXPECT_EQ(choose_devices(links, 0xff, {.count = 4}).mask, 0x0fu);
  EXPECT_EQ(choose_devices(links, 0xff, {.count = 4}).weakest, 300);
  EXPECT_EQ(choose_devices(links, 0b0011'1101, {.count = 2}).mask, 0b0011'0000u);
  EXPECT_EQ(choose_devices(links, 0b0011'1101, {.count = 1}).mask, 0b0001'0000u);
  EXPECT_EQ(choose_devices(links, 0b0001'0001, {.count = 2}).weakest, 16);
}

TEST(DeviceChoice, PackPrefersOneNumaNodeWhereLinksAreEqual) {
  const LinkMap links(node_of({8}, 4));
  EXPECT_EQ(choose_devices(links, 0b1111'0001, {.count = 2}).mask, 0b0011'0000u);
}

TEST(DeviceChoice, SpreadGoesOverTheIslandsInTurn) {
  const LinkMap links(node_of({4, 4}));
  const DeviceWish wish{.count = 4, .layout = Layout::kSpread};
  EXPECT_EQ(choose_devices(links, 0xff, wish).mask, 0b0011'0011u);
  EXPECT_EQ(choose_devices(links, 0b0001'1111, wish).mask, 0b0001'0111u);
}

TEST(DeviceChoice, ContiguousHasNoGapAndTearsNoHole) {
  const LinkMap none;
  const DeviceWish wish{.count = 2, .layout = Layout::kContiguous};
  EXPECT_EQ(choose_devices(none, 0b1101'1011, wish).mask, 0b0000'0011u);
  EXPECT_EQ(choose_devices(none, 0b0110'1110, wish).mask, 0b0110'0000u);
  EXPECT_EQ(choose_devices(none, 0b0101'0101, wish).mask, 0u);
}

TEST(DeviceChoice, NamedDevicesAndABandwidthAreMetOrRefused) {
  const LinkMap links(node_of({2, 2}));
  EXPECT_EQ(choose_devices(links, 0xf, {.count = 2, .named = 0b0110}).mask, 0b0110u);
  EXPECT_EQ(choose_devices(links, 0xd, {.count = 2, .named = 0b0110}).mask, 0u);
  EXPECT_EQ(choose_devices(links, 0xf, {.count = 2, .bandwidth_min = 100}).mask, 0b0011u);
  EXPECT_EQ(choose_devices(links, 0b0110, {.count = 2, .bandwidth_min = 100}).mask, 0u);
  EXPECT_EQ(choose_devices(links, 0xf, {.count = 3, .bandwidth_min = 100}).mask, 0u);
  EXPECT_EQ(choose_devices(LinkMap(), 0xf, {.count = 2, .bandwidth_min = 1}).mask, 0u);
}

class RandomLinks : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomLinks, NoOtherChoiceHasAStrongerWeakestLink) {
  Prng prng(GetParam());
  static constexpr int64_t kSpeeds[] = {10, 20, 50, 300};
  for (int round = 0; round < 300; ++round) {
    Node node;
    node.devices.resize(1 + prng.below(8));
    for (Device& device : node.devices) {
      if (const auto drawn = static_cast<int32_t>(prng.below(3)); drawn > 0) device.numa_node = drawn - 1;
    }
    for (std::size_t i = 0; i < pair_count(node.devices.size()); ++i) {
      node.links.push_back(
          Link{.kind = static_cast<LinkKind>(prng.below(8)), .gbs = kSpeeds[prng.below(4)]}.code());
    }
    const LinkMap links(node);
    const uint64_t usable = prng.below(uint64_t{1} << node.devices.size());
    const int count = static_cast<int>(1 + prng.below(8));
    for (const bool contiguous : {false, true}) {
      const DeviceWish wish{.count = count, .layout = contiguous ? Layout::kContiguous : Layout::kPack};
      const DeviceChoice found = choose_devices(links, usable, wish);
      const int64_t best = best_weakest(links, usable, count, contiguous);
      ASSERT_EQ(found.mask != 0, best >= 0);
      if (best < 0) continue;
      ASSERT_EQ(std::popcount(found.mask), count);
      ASSERT_EQ(found.mask & ~usable, 0u);
      ASSERT_EQ(found.weakest, best) << "usable " << usable << " count " << count;
      if (count < 2) continue;
      DeviceWish bounded = wish;
      bounded.bandwidth_min = best + 1;
      ASSERT_EQ(choose_devices(links, usable, bounded).mask, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomLinks, ::testing::Range<uint64_t>(0, 8));

TEST(DeviceChoice, LargeNodesOfCleanIslandsAreServedWell) {
  const Node node = node_of({16, 16, 16, 16});
  const LinkMap links(node);
  Prng prng(7);
  for (int round = 0; round < 50; ++round) {
    const uint64_t usable = prng.next() | prng.next();
    int largest = 0;
    for (int island = 0; island < 4; ++island)
      largest = std::max(largest, std::popcount((usable >> (16 * island)) & 0xffff));
    const DeviceChoice found = choose_devices(links, usable, {.count = 8});
    EXPECT_EQ(found.weakest, largest >= 8 ? 300 : 16);
  }
}

TEST(DeviceChooser, NodesThatAreBuiltAlikeShareWhatWasFound) {
  DeviceChooser chooser;
  const uint32_t build = chooser.add(node_of({4, 4}));
  EXPECT_NE(build, 0u);
  EXPECT_EQ(chooser.add(node_of({4, 4})), build);
  EXPECT_NE(chooser.add(node_of({2, 6})), build);
  EXPECT_EQ(chooser.add(Node{}), 0u);
  for (int again = 0; again < 2; ++again)
    EXPECT_EQ(chooser.choose(build, 0xf0, {.count = 2}).mask, 0b0011'0000u);
}

TEST(StrongLinks, MoreBandwidthScoresHigherAndOneDeviceNever) {
  const StrongLinks policy;
  const Node node;
  int32_t last = -1;
  for (const int64_t gbs : {0, 16, 20, 32, 300, 450, 1'000, 100'000}) {
    NodeView view{.node = node};
    view.link_gbs = gbs;
    const int32_t score = policy.score(Part{.gpu_count = 2}, view).value;
    EXPECT_GE(score, last);
    last = score;
    EXPECT_EQ(policy.score(Part{.gpu_count = 1}, view).value, 0);
  }
}

}  // namespace
}  // namespace gpusched::policy
