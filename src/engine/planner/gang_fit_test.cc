#include "engine/planner/gang_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/prng.h"

namespace gpusched {
namespace {

/// A small cluster: where each node is, and how many members it has room for.
struct Cluster {
  DomainTree tree;
  GangRoom room;
  std::vector<Node> nodes;
  std::vector<int32_t> rooms;

  void add(const std::string& zone, const std::string& block, const std::string& rack, int32_t members) {
    Node node;
    node.slot = static_cast<uint32_t>(nodes.size());
    node.id = NodeId{node.slot + 1};
    if (!block.empty()) node.agent_labels.push_back({.name = "topology.block", .value = block});
    if (!rack.empty()) node.agent_labels.push_back({.name = "topology.rack", .value = rack});
    if (!zone.empty()) node.agent_labels.push_back({.name = "topology.zone", .value = zone});
    nodes.push_back(node);
    rooms.push_back(members);
    tree.put(SchedulingPolicy{}, node);
    room.set(tree, node.slot, members);
  }
  std::string domain(uint32_t slot, DomainLevel level) const {
    return level == DomainLevel::kAny ? "cluster" : domain_of(SchedulingPolicy{}, nodes[slot], level);
  }
};

constexpr DomainLevel kUp[] = {DomainLevel::kNode, DomainLevel::kRack, DomainLevel::kBlock,
                               DomainLevel::kZone, DomainLevel::kAny};

Cluster random_cluster(Prng& prng, uint64_t nodes_max) {
  Cluster cluster;
  const uint64_t count = 1 + prng.below(nodes_max);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string zone = prng.chance(100) ? "" : "z" + std::to_string(prng.below(2));
    const std::string block = prng.chance(100) ? "" : "b" + std::to_string(prng.below(2));
    const std::string rack = prng.chance(100) ? "" : "r" + std::to_string(prng.below(3));
    cluster.add(zone, block, rack, static_cast<int32_t>(prng.below(5)));
  }
  return cluster;
}

/// Sums for each domain, by its name.
std::map<std::string, int64_t> sums(const Cluster& cluster, DomainLevel level) {
  std::map<std::string, int64_t> sums;
  for (uint32_t slot = 0; slot < cluster.nodes.size(); ++slot) {
    const std::string domain = cluster.domain(slot, level);
    if (!domain.empty()) sums[domain] += cluster.rooms[slot];
  }
  return sums;
}

/// The smallest level of which one domain has room for so many; none: not even the widest one that may be.
std::optional<DomainLevel> smallest_level(const Cluster& cluster, const GangWish& wish, int64_t members) {
  for (const DomainLevel level : kUp) {
    for (const auto& [domain, sum] : sums(cluster, level)) {
      if (sum >= members) return level;
    }
    if (wish.required && level == wish.domain) return std::nullopt;
  }
  return std::nullopt;
}

/// Over so few nodes as can be the smallest difference that any way of sharing out has, by trying all.
std::pair<int32_t, int32_t> best_balance(const std::vector<int32_t>& rooms, int32_t members) {
  std::pair<int32_t, int32_t> best = {INT32_MAX, INT32_MAX};  // Nodes, difference.
  std::vector<int32_t> chosen(rooms.size(), 0);
  const auto visit = [&](auto&& self, std::size_t at, int32_t left) -> void {
    if (left == 0) {
      int32_t nodes = 0;
      int32_t least = INT32_MAX;
      int32_t most = 0;
      for (const int32_t count : chosen) {
        if (count == 0) continue;
        ++nodes;
        least = std::min(least, count);
        most = std::max(most, count);
      }
      best = std::min(best, {nodes, most - least});
      return;
    }
    if (at == rooms.size()) return;
    for (int32_t count = 0; count <= std::min(rooms[at], left); ++count) {
      chosen[at] = count;
      self(self, at + 1, left - count);
    }
    chosen[at] = 0;
  };
  visit(visit, 0, members);
  return best;
}

TEST(GangFit, FindsWhatTryingEverythingFinds) {
  Prng prng(7);
  int placed = 0;
  int refused = 0;
  for (int round = 0; round < 3'000; ++round) {
    const Cluster cluster = random_cluster(prng, 9);
    GangWish wish{.members_min = static_cast<int32_t>(1 + prng.below(12)), .members_max = 0};
    wish.members_max = wish.members_min + static_cast<int32_t>(prng.chance(300) ? prng.below(6) : 0);
    wish.required = prng.chance(400);
    if (wish.required) wish.domain = kUp[prng.below(4)];
    const std::optional<GangFit> fit = fit_gang(cluster.tree, cluster.room, wish);
    const std::optional<DomainLevel> least = smallest_level(cluster, wish, wish.members_min);
    ASSERT_EQ(fit.has_value(), least.has_value());
    if (!fit.has_value()) {
      ++refused;
      continue;
    }
    ++placed;
    // As many as may be, all in one domain of the smallest level that holds as many.
    const bool all = fit->members == wish.members_max;
    EXPECT_TRUE(all || !smallest_level(cluster, wish, fit->members + 1).has_value());
    EXPECT_EQ(fit->level, smallest_level(cluster, wish, fit->members));
    int32_t sum = 0;
    for (const GangSpot& spot : fit->spots) {
      EXPECT_GT(spot.members, 0);
      EXPECT_LE(spot.members, cluster.rooms[spot.slot]);
      EXPECT_EQ(cluster.domain(spot.slot, fit->level), cluster.domain(fit->spots.front().slot, fit->level));
      sum += spot.members;
    }
    EXPECT_EQ(sum, fit->members);
  }
  EXPECT_GT(placed, 500);
  EXPECT_GT(refused, 500);
}

TEST(GangFit, SharesOutAsEvenlyAsTryingEverything) {
  Prng prng(11);
  for (int round = 0; round < 1'500; ++round) {
    std::vector<int32_t> rooms(1 + prng.below(6));
    for (int32_t& room : rooms) room = static_cast<int32_t>(prng.below(7));
    const int32_t total = std::accumulate(rooms.begin(), rooms.end(), 0);
    if (total == 0) continue;
    const auto members = static_cast<int32_t>(1 + prng.below(static_cast<uint64_t>(total)));
    const std::vector<int32_t> counts = share_out({rooms.begin(), rooms.end()}, members);
    std::pair<int32_t, int32_t> got = {0, 0};
    int32_t least = INT32_MAX;
    int32_t most = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      ASSERT_LE(counts[i], rooms[i]);
      if (counts[i] == 0) continue;
      ++got.first;
      least = std::min(least, counts[i]);
      most = std::max(most, counts[i]);
    }
    got.second = most - least;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), members);
    EXPECT_EQ(got, best_balance(rooms, members));
  }
}

TEST(GangFit, TakesTheTightestOfThoseThatShareEvenly) {
  EXPECT_EQ(share_out({8, 6, 7, 6}, 12), (std::vector<int32_t>{0, 6, 0, 6}));
  EXPECT_EQ(share_out({8, 4, 8}, 12), (std::vector<int32_t>{6, 0, 6}));
  EXPECT_EQ(share_out({2, 8, 8}, 17), (std::vector<int32_t>{2, 8, 7}));
}

/// Devices alone: a node has so many, a member of part i takes `sizes[i]`, and none is between two nodes.
struct Devices {
  std::vector<int32_t> free;
  std::vector<int32_t> sizes;  ///< The main part's last.

  int32_t beside(uint32_t slot, const std::vector<int32_t>& counts) const {
    int32_t left = free[slot];
    for (std::size_t i = 0; i < counts.size(); ++i) left -= counts[i] * sizes[i];
    return left < 0 ? -1 : left / sizes.back();
  }
};

/// Whether all members fit onto these nodes, by trying every way.
bool fits_somehow(const Devices& devices, std::vector<int32_t> free, const std::vector<uint32_t>& nodes,
                  std::vector<int32_t> left) {
  const auto part = std::find_if(left.begin(), left.end(), [](int32_t count) { return count > 0; });
  if (part == left.end()) return true;
  --*part;
  const int32_t size = devices.sizes[static_cast<std::size_t>(part - left.begin())];
  for (const uint32_t slot : nodes) {
    if (free[slot] < size) continue;
    free[slot] -= size;
    if (fits_somehow(devices, free, nodes, left)) return true;
    free[slot] += size;
  }
  return false;
}

TEST(GangFit, FindsPlacesForSeveralPartsWheneverThereAreSome) {
  Prng prng(13);
  int placed = 0;
  for (int round = 0; round < 1'200; ++round) {
    Cluster cluster;
    Devices devices{
        .free = {},
        .sizes = {static_cast<int32_t>(1 + prng.below(3)), static_cast<int32_t>(1 + prng.below(3))}};
    if (prng.chance(300))
      devices.sizes.insert(devices.sizes.begin(), static_cast<int32_t>(1 + prng.below(4)));
    const uint64_t count = 1 + prng.below(4);
    for (uint64_t i = 0; i < count; ++i) {
      devices.free.push_back(static_cast<int32_t>(prng.below(6)));
      cluster.add("z", "b", "r" + std::to_string(prng.below(2)), devices.free.back() / devices.sizes.back());
    }
    std::vector<int32_t> others(devices.sizes.size() - 1);
    for (int32_t& other : others) other = static_cast<int32_t>(1 + prng.below(2));
    GangWish wish{.members_min = static_cast<int32_t>(1 + prng.below(4)), .members_max = 0};
    wish.members_max = wish.members_min + static_cast<int32_t>(prng.chance(300) ? prng.below(3) : 0);
    wish.required = prng.chance(300);
    if (wish.required) wish.domain = DomainLevel::kRack;
    const auto beside = [&](uint32_t slot, const std::vector<int32_t>& counts) {
      return devices.beside(slot, counts);
    };
    const std::optional<GangFit> fit = fit_parts(cluster.tree, cluster.room, wish, others, beside);
    const auto holds = [&](int32_t members, DomainLevel level) {
      std::vector<int32_t> left = others;
      left.push_back(members);
      std::map<std::string, std::vector<uint32_t>> domains;
      for (uint32_t slot = 0; slot < count; ++slot) domains[cluster.domain(slot, level)].push_back(slot);
      return std::any_of(domains.begin(), domains.end(), [&](const auto& entry) {
        return fits_somehow(devices, devices.free, entry.second, left);
      });
    };
    const DomainLevel widest = wish.required ? DomainLevel::kRack : DomainLevel::kAny;
    ASSERT_EQ(fit.has_value(), holds(wish.members_min, widest));
    if (!fit.has_value()) continue;
    ++placed;
    EXPECT_TRUE(fit->members == wish.members_max || !holds(fit->members + 1, widest));
    for (const DomainLevel level : kUp) {
      EXPECT_EQ(holds(fit->members, level),
                static_cast<int>(level) >= static_cast<int>(fit->level) || level == DomainLevel::kAny);
      if (level == fit->level) break;
    }
    std::vector<int32_t> left = devices.free;
    for (std::size_t i = 0; i < others.size(); ++i) {
      int32_t members = 0;
      for (const GangSpot& spot : fit->other_spots[i]) {
        left[spot.slot] -= spot.members * devices.sizes[i];
        members += spot.members;
      }
      EXPECT_EQ(members, others[i]);
    }
    int32_t members = 0;
    for (const GangSpot& spot : fit->spots) {
      left[spot.slot] -= spot.members * devices.sizes.back();
      members += spot.members;
    }
    EXPECT_EQ(members, fit->members);
    EXPECT_TRUE(std::all_of(left.begin(), left.end(), [](int32_t rest) { return rest >= 0; }));
  }
  EXPECT_GT(placed, 200);
}

TEST(GangFit, ANodeThatMovesTakesItsRoomAlong) {
  Cluster cluster;
  cluster.add("z", "b", "r1", 4);
  cluster.add("z", "b", "r2", 4);
  const GangWish wish{.members_min = 8, .members_max = 8, .domain = DomainLevel::kRack, .required = true};
  EXPECT_FALSE(fit_gang(cluster.tree, cluster.room, wish).has_value());
  cluster.nodes[1].labels = {{.name = "topology.rack", .value = "r1"}};
  cluster.tree.put(SchedulingPolicy{}, cluster.nodes[1]);
  cluster.room.follow(cluster.tree);
  const std::optional<GangFit> fit = fit_gang(cluster.tree, cluster.room, wish);
  ASSERT_TRUE(fit.has_value());
  EXPECT_EQ(fit->spots, (std::vector<GangSpot>{{0, 4}, {1, 4}}));
  EXPECT_FALSE(cluster.tree.has_named(DomainLevel::kAny));
  EXPECT_TRUE(cluster.tree.has_named(DomainLevel::kRack));
}

}  // namespace
}  // namespace gpusched
