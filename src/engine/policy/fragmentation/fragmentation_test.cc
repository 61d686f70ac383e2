#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"
#include "engine/policy/fragmentation/index.h"

namespace gpusched::policy {
namespace {

NodeSpace node_of(int64_t cpu_milli, std::vector<uint16_t> milli, uint32_t device_class = 0) {
  NodeSpace node{.cpu_milli = cpu_milli, .memory_mb = 100'000, .device_class = device_class};
  node.device_count = static_cast<uint32_t>(milli.size());
  std::copy(milli.begin(), milli.end(), node.milli.begin());
  return node;
}

TaskShape share(int32_t milli, int64_t cpu_milli = 1000) {
  return {.cpu_milli = cpu_milli, .gpu_count = 1, .gpu_milli = milli};
}
TaskShape whole(int32_t count, int64_t cpu_milli = 1000) {
  return {.cpu_milli = cpu_milli, .gpu_count = count, .gpu_milli = kWholeMilli};
}
TaskShape cpu_only(int64_t cpu_milli) { return {.cpu_milli = cpu_milli}; }

TEST(Fits, AWholeDeviceIsNeededForEachOfSeveral) {
  EXPECT_TRUE(fits(whole(2), node_of(4000, {1000, 500, 1000})));
  EXPECT_FALSE(fits(whole(2), node_of(4000, {1000, 999, 999})));
  EXPECT_FALSE(fits(whole(1, 5000), node_of(4000, {1000})));
  TaskShape picky = whole(1);
  picky.device_classes = 0b10;
  EXPECT_FALSE(fits(picky, node_of(4000, {1000}, 0)));
  EXPECT_TRUE(fits(picky, node_of(4000, {1000}, 1)));
}

TEST(Fits, AShareNeedsItsMemoryOnTheSameDevice) {
  NodeSpace node = node_of(4000, {600, 300});
  node.device_memory_mb[0] = 2000;
  node.device_memory_mb[1] = 9000;
  TaskShape task = share(500);
  task.device_memory_mb = 4000;
  EXPECT_FALSE(fits(task, node));
  node.milli[1] = 500;
  EXPECT_TRUE(fits(task, node));
  EXPECT_EQ(tightest_device(task, node), 1u);
}

TEST(TakeAndGiveBack, LeaveTheNodeAsItWas) {
  const NodeSpace before = node_of(8000, {1000, 400, 1000});
  NodeSpace node = before;
  const uint64_t devices = devices_for(whole(2), node, 0);
  EXPECT_EQ(devices, 0b101u);
  take(whole(2), devices, node);
  EXPECT_EQ(node.milli[0], 0);
  EXPECT_EQ(node.milli[1], 400);
  EXPECT_EQ(node.cpu_milli, 7000);
  give_back(whole(2), devices, node);
  EXPECT_EQ(node, before);
}

// By hand: three quarters of the tasks want 500 of a device, one quarter two whole devices.
TEST(FragmentationTable, IsWhatPopularShapesCannotUse) {
  const std::vector<PopularShape> popular = {{share(500), 3}, {whole(2), 1}};
  const FragmentationTable table(popular);
  constexpr int64_t kUnit = FragmentationTable::kUnit;
  // 1,300 are free. The share can use the 1,000; two devices are not there: all 1,300 are lost to them.
  EXPECT_EQ(table.fragmented(node_of(4000, {1000, 300})), (3 * 300 + 1 * 1300) * kUnit / 4);
  // Both can use all of it.
  EXPECT_EQ(table.fragmented(node_of(4000, {1000, 1000})), 0);
  // Without CPU everything is lost.
  EXPECT_EQ(table.fragmented(node_of(500, {1000, 1000})), 2000 * kUnit);
  // A share of 700 on the second of two whole devices: 0 before, (3 x 300 + 1,300) / 4 after.
  EXPECT_EQ(table.growth(share(700), 0b10, node_of(4000, {1000, 1000})), (3 * 300 + 1300) * kUnit / 4);
}

TEST(FragmentationTable, TasksWithoutGpusCallEverythingFragmented) {
  const std::vector<PopularShape> popular = {{cpu_only(1000), 1}, {share(100), 1}};
  const FragmentationTable table(popular);
  EXPECT_EQ(table.fragmented(node_of(4000, {1000})), 500 * FragmentationTable::kUnit);
}

TEST(FragmentationTable, OnlyTheClassesOfAShapeAreItsOwn) {
  std::vector<PopularShape> popular = {{share(100), 1}, {share(200), 1}};
  popular[1].shape.device_classes = 0b10;
  const FragmentationTable table(popular);
  EXPECT_EQ(table.fragmented(node_of(4000, {1000}, 0)), 500 * FragmentationTable::kUnit);
  EXPECT_EQ(table.fragmented(node_of(4000, {1000}, 1)), 0);
}

// int(100 / (1 + exp(x))): 1 / (1 + e) = 0.2689, 1 / (1 + 1 / e) = 0.7310.
TEST(PublishedScore, IsTheQuantisedSigmoid) {
  constexpr int64_t kDevice = 1000 * FragmentationTable::kUnit;
  EXPECT_EQ(published_score(0), 50);
  EXPECT_EQ(published_score(1), 49);
  EXPECT_EQ(published_score(kDevice), 26);
  EXPECT_EQ(published_score(-kDevice), 73);
  EXPECT_EQ(published_score(64 * kDevice), 0);
  EXPECT_EQ(published_score(-64 * kDevice), 99);
  // A step at 50 is 40 thousandths wide: 100 (1 / (1 + exp(-0.040006)) - 0.5) = 1.
  EXPECT_EQ(published_score(-40 * kDevice / 1000), 50);
  EXPECT_EQ(published_score(-41 * kDevice / 1000), 51);
}

TEST(FragmentationGradient, PutsAShareBesideAnother) {
  const std::vector<PopularShape> popular = {{share(500), 1}, {whole(1), 1}};
  const FragmentationGradient rule(popular);
  FragmentationIndex index(rule);
  index.put(0, node_of(8000, {1000, 1000}));
  index.put(1, node_of(8000, {1000, 500}));
  const auto found = index.best(share(500));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->slot, 1u);
  EXPECT_EQ(found->devices, 0b10u);
}

TEST(HolePrices, AreThoseOfCuttingStock) {
  // As many thirds as there are halves: no hole below 330 is worth anything, a half is worth a half.
  const std::vector<PopularShape> popular = {{share(500), 100}, {share(330), 100}, {whole(1), 100}};
  const HolePrices prices(popular);
  const auto near = [&](int32_t milli, int64_t per_mille) {
    return std::abs(prices.of(milli) * 1000 / HolePrices::kUnit - per_mille) <= 15;
  };
  EXPECT_EQ(prices.of(0), 0);
  EXPECT_EQ(prices.of(329), 0);
  EXPECT_TRUE(near(330, 333)) << prices.of(330) * 1000 / HolePrices::kUnit;
  EXPECT_TRUE(near(500, 500)) << prices.of(500) * 1000 / HolePrices::kUnit;
  EXPECT_EQ(prices.of(1000), HolePrices::kUnit);
  for (int32_t milli = 1; milli <= kWholeMilli; ++milli) EXPECT_GE(prices.of(milli), prices.of(milli - 1));
}

TEST(HolePrices, AreNothingWhereNobodyWantsDevices) {
  const std::vector<PopularShape> popular = {{cpu_only(1000), 1}};
  EXPECT_EQ(HolePrices(popular).of(1000), 0);
  EXPECT_EQ(HolePrices({}).of(1000), 0);
}

// One shape, half a device with 2 cores. Two holes of 500 and 3 cores: both holes are priced (4 x 500 each),
// and a task and a half fit by CPU: 1.5 x 500.
TEST(SpaceValue, IsLimitedByWhatRunsOutFirst) {
  const std::vector<PopularShape> popular = {{share(500, 2000), 1}};
  const SpaceValue value(popular, {.hole_weight = 4});
  constexpr int64_t kUnit = SpaceValue::kUnit;
  // Tasks are counted in 256ths, rounded down.
  constexpr int64_t kGrain = 500 * kUnit / 256;
  EXPECT_LE(value.of(node_of(3000, {500, 500})), (2 * 4 * 500 + 750) * kUnit);
  EXPECT_GE(value.of(node_of(3000, {500, 500})), (2 * 4 * 500 + 750) * kUnit - kGrain);
  EXPECT_EQ(value.of(node_of(8000, {500, 500})), (2 * 4 * 500 + 1000) * kUnit);
  EXPECT_EQ(value.of(node_of(1999, {500, 500})), 0);
  EXPECT_EQ(value.of(node_of(8000, {499, 499})), 0);
  // The last whole task by CPU takes everything that is left with it.
  const NodeSpace node = node_of(3000, {500, 500});
  EXPECT_EQ(SpaceValue::After(value, cpu_only(1500), node).on(0), 0);
}

TEST(LeastValueLost, KeepsTasksWithoutGpusAwayFromFreeGpus) {
  const std::vector<PopularShape> popular = {{whole(1, 4000), 1}, {cpu_only(4000), 1}};
  const LeastValueLost rule(popular, {});
  FragmentationIndex index(rule);
  index.put(0, node_of(8000, {1000, 1000}));
  index.put(1, node_of(8000, {0, 0}));
  index.put(2, node_of(80'000, {1000, 1000}));
  EXPECT_EQ(index.best(cpu_only(4000))->slot, 1u);
  index.remove(1);
  EXPECT_EQ(index.best(cpu_only(4000))->slot, 2u);
}

TEST(ShapePopularity, ForgetsAndStaysBounded) {
  ShapePopularity popularity;
  EXPECT_FALSE(popularity.is_due(0));
  for (uint64_t i = 0; i < ShapePopularity::kWindow - 1; ++i) popularity.arrived(share(100));
  EXPECT_TRUE(popularity.is_due(0));
  EXPECT_FALSE(popularity.is_due(popularity.arrivals()));
  popularity.arrived(share(200));
  std::vector<PopularShape> table = popularity.commonest(1000);
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0].weight, (ShapePopularity::kWindow - 1) / 2);
  for (uint64_t i = 0; i < 3 * ShapePopularity::kWindow; ++i) popularity.arrived(share(200));
  table = popularity.commonest(950);
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0].shape, share(200));
  ShapePopularity crowded;
  for (int64_t i = 0; i < 5000; ++i) crowded.arrived(cpu_only(1 + i));
  EXPECT_EQ(crowded.commonest(1000).size(), kPopularMax);
}

TEST(ShapePopularity, TheCommonestCoverWhatIsAskedFor) {
  const std::vector<PopularShape> counted = {
      {share(100), 50}, {share(200), 30}, {share(300), 15}, {share(400), 5}};
  const auto table = commonest_of(counted, 950);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0].shape, share(100));
  EXPECT_EQ(table[2].shape, share(300));
}

TEST(FragmentationIndex, PassesOverWhatIsTurnedDownForOneQuestionOnly) {
  const PublishedBestFit rule;
  FragmentationIndex index(rule);
  index.put(0, node_of(8000, {1000}));
  index.put(1, node_of(8000, {1000}));
  EXPECT_EQ(index.best(whole(1))->slot, 0u);
  const auto accept = [](const FragmentationIndex::Found& found) { return found.slot != 0; };
  EXPECT_EQ(index.best(whole(1), accept)->slot, 1u);
  EXPECT_EQ(index.best(whole(1))->slot, 0u);
  EXPECT_FALSE(index.best(whole(1), [](const FragmentationIndex::Found&) { return false; }));
}

/// Small clusters of few kinds, so that equal nodes, ties and full nodes are common.
struct RandomCluster {
  explicit RandomCluster(uint64_t seed) : prng(seed) {}

  NodeSpace node() {
    std::vector<uint16_t> milli(static_cast<std::size_t>(prng.between(0, 4)));
    for (uint16_t& each : milli) each = static_cast<uint16_t>(100 * prng.between(0, 10));
    NodeSpace made = node_of(1000 * prng.between(0, 6), milli, static_cast<uint32_t>(prng.below(2)));
    made.memory_mb = 1000 * prng.between(0, 6);
    return made;
  }
  TaskShape shape() {
    TaskShape made{.cpu_milli = 1000 * prng.between(0, 2), .memory_mb = 1000 * prng.between(0, 2)};
    made.gpu_count = static_cast<int32_t>(prng.between(0, 2));
    if (made.gpu_count == 1) made.gpu_milli = 100 * static_cast<int32_t>(prng.between(1, 10));
    if (made.gpu_count == 2) made.gpu_milli = kWholeMilli;
    if (prng.chance(200)) made.device_classes = 1 + prng.below(3);
    return made;
  }
  std::vector<PopularShape> popular() {
    std::vector<PopularShape> made;
    for (int i = 0; i < 8; ++i) made.push_back({.shape = shape(), .weight = 1 + prng.below(9)});
    return made;
  }
  Prng prng;
};

std::optional<FragmentationIndex::Found> exhaustive(const PlacementRule& rule, const TaskShape& shape,
                                                    const std::vector<NodeSpace>& nodes,
                                                    const std::vector<bool>& present) {
  std::optional<FragmentationIndex::Found> best;
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) {
    if (!present[slot] || !fits(shape, nodes[slot])) continue;
    const PlacementRate rate = rule.rate(shape, nodes[slot], rule.standing(nodes[slot]));
    if (!best || rate.value > best->rate.value) {
      best = FragmentationIndex::Found{
          .slot = slot, .rate = rate, .devices = devices_for(shape, nodes[slot], rate.device)};
    }
  }
  return best;
}

/// Places, ends, loses and brings back at random, and compares each answer with rating every node.
void run_random(const PlacementRule& rule, const PlacementRule& later, uint64_t seed) {
  RandomCluster random(seed);
  std::vector<NodeSpace> nodes;
  std::vector<bool> present;
  struct Running {
    TaskShape shape;
    uint32_t slot;
    uint64_t devices;
  };
  std::vector<Running> running;
  const PlacementRule* now = &rule;
  FragmentationIndex index(rule);
  const auto put = [&](uint32_t slot) {
    index.put(slot, nodes[slot]);
    present[slot] = true;
  };
  for (int step = 0; step < 150; ++step) {
    const uint64_t what = random.prng.below(10);
    if (nodes.empty() || (what == 0 && nodes.size() < 12)) {
      nodes.push_back(random.node());
      present.push_back(false);
      put(static_cast<uint32_t>(nodes.size() - 1));
    } else if (what == 1) {
      const auto slot = static_cast<uint32_t>(random.prng.below(nodes.size()));
      if (present[slot]) {
        index.remove(slot);
        present[slot] = false;
      } else {
        put(slot);
      }
    } else if (what <= 3 && !running.empty()) {
      const auto at = static_cast<std::ptrdiff_t>(random.prng.below(running.size()));
      const Running ended = running[static_cast<std::size_t>(at)];
      running.erase(running.begin() + at);
      give_back(ended.shape, ended.devices, nodes[ended.slot]);
      if (present[ended.slot]) put(ended.slot);
    } else {
      const TaskShape shape = random.shape();
      const auto expected = exhaustive(*now, shape, nodes, present);
      const auto found = index.best(shape);
      ASSERT_EQ(found.has_value(), expected.has_value())
          << rule.name() << " seed " << seed << " step " << step;
      if (!found) continue;
      ASSERT_EQ(found->rate.value, expected->rate.value)
          << rule.name() << " seed " << seed << " step " << step;
      ASSERT_EQ(*found, *expected) << rule.name() << " seed " << seed << " step " << step;
      take(shape, found->devices, nodes[found->slot]);
      put(found->slot);
      running.push_back({.shape = shape, .slot = found->slot, .devices = found->devices});
    }
    if (step == 90) {
      now = &later;
      index.use(later);
    }
  }
}

TEST(FragmentationIndex, GivesWhatRatingEveryNodeWould) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    RandomCluster random(seed * 1000);
    const PublishedBestFit best_fit;
    const GpuPacking packing;
    run_random(best_fit, packing, seed);
    run_random(packing, best_fit, seed);
    const FragmentationGradient fgd(random.popular());
    const FragmentationGradient fgd_later(random.popular());
    run_random(fgd, fgd_later, seed);
    const LeastValueLost least(random.popular(), {});
    const LeastValueLost least_later(random.popular(), {.value = {.hole_weight = 1}, .quantum_milli = 1});
    run_random(least, least_later, seed);
  }
}

TEST(SpaceValue, AfterIsTheValueOfWhatIsLeft) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RandomCluster random(seed);
    const SpaceValue value(random.popular(), {.weigh_by_devices = seed % 2 == 0});
    for (int i = 0; i < 100; ++i) {
      const NodeSpace node = random.node();
      const TaskShape shape = random.shape();
      if (!fits(shape, node)) continue;
      const uint64_t devices = devices_for(shape, node, shape.is_share() ? tightest_device(shape, node) : 0);
      NodeSpace left = node;
      take(shape, devices, left);
      EXPECT_EQ(SpaceValue::After(value, shape, node).on(devices), value.of(left)) << seed;
      EXPECT_LE(value.of(left), value.of(node)) << seed;
    }
  }
}

// The published table is a shortcut for its definition: all shapes, one by one.
TEST(FragmentationTable, IsItsDefinition) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RandomCluster random(seed);
    std::vector<PopularShape> popular = random.popular();
    uint64_t total = 0;
    for (const PopularShape& each : popular) total += each.weight;
    popular.push_back({.shape = cpu_only(1000), .weight = (uint64_t{1} << 7) - total});  // Exact in binary.
    const FragmentationTable table(popular);
    const NodeSpace node = random.node();
    int64_t expected = 0;
    for (const PopularShape& each : popular) {
      const TaskShape& shape = each.shape;
      TaskShape without_memory = shape;
      without_memory.memory_mb = 0;
      const bool runs = shape.gpu_count > 0 && fits(without_memory, node);
      for (uint32_t i = 0; i < node.device_count; ++i) {
        if (!runs || node.milli[i] < shape.gpu_milli)
          expected += static_cast<int64_t>(each.weight) * node.milli[i];
      }
    }
    EXPECT_EQ(table.fragmented(node), expected * (FragmentationTable::kUnit / 128)) << seed;
  }
}

}  // namespace
}  // namespace gpusched::policy
