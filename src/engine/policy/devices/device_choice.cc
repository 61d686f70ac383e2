#include "engine/policy/devices/device_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched::policy {
namespace {

/// Steps of one search where not everything is tried.
constexpr int kStepsMax = 2'000;
/// Number of choices remembered for nodes of one build.
constexpr std::size_t kFoundMax = 4'096;
/// Different builds of nodes; what comes then is treated as one whose links are not known.
constexpr std::size_t kBuildsMax = 1'024;

uint64_t bit(std::size_t index) { return uint64_t{1} << index; }
std::size_t first_of(uint64_t mask) { return static_cast<std::size_t>(std::countr_zero(mask)); }

uint64_t lowest(uint64_t mask, int32_t count) {
  uint64_t chosen = 0;
  for (; count > 0 && mask != 0; --count, mask &= mask - 1) chosen |= mask & (~mask + 1);
  return chosen;
}

/// Rating of choices with equally strong weakest links; less is better.
using Rating = std::tuple<int, int, int, int, uint64_t>;
Rating rate(const LinkMap& links, uint64_t usable, uint64_t mask) {
  int islands = 0;
  int numas = 0;
  int left_in_islands = 0;
  int left_in_numas = 0;
  for (uint64_t rest = mask; rest != 0; rest &= ~links.island_of(first_of(rest))) {
    ++islands;
    left_in_islands += std::popcount(links.island_of(first_of(rest)) & usable & ~mask);
  }
  for (uint64_t rest = mask; rest != 0; rest &= ~links.numa_of(first_of(rest))) {
    ++numas;
    left_in_numas += std::popcount(links.numa_of(first_of(rest)) & usable & ~mask);
  }
  return {islands, numas, left_in_islands, left_in_numas, mask};
}

/// Looks for the best-rated set of `count` devices in which any two are linked by at least a bandwidth.
class CliqueSearch {
 public:
  CliqueSearch(const LinkMap& links, uint64_t usable, int32_t count)
      : links_(links), usable_(usable), count_(count) {}

  uint64_t at_least(int64_t gbs) {
    best_ = 0;
    steps_ = std::popcount(usable_) <= kExactMax ? INT32_MAX : kStepsMax;
    linked_.fill(0);
    for (uint64_t rest = usable_; rest != 0; rest &= rest - 1) {
      for (uint64_t others = rest & (rest - 1); others != 0; others &= others - 1) {
        const std::size_t a = first_of(rest);
        const std::size_t b = first_of(others);
        if (links_.between(a, b).gbs < gbs) continue;
        linked_[a] |= bit(b);
        linked_[b] |= bit(a);
      }
    }
    // Those with the fewest good links first: they are of little use to larger jobs.
    std::vector<std::size_t> seeds;
    for (uint64_t rest = usable_; rest != 0; rest &= rest - 1) {
      if (std::popcount(linked_[first_of(rest)]) >= count_ - 1) seeds.push_back(first_of(rest));
    }
    std::sort(seeds.begin(), seeds.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(std::popcount(linked_[a]), a) < std::pair(std::popcount(linked_[b]), b);
    });
    uint64_t done = 0;
    for (const std::size_t seed : seeds) {
      extend(bit(seed), linked_[seed] & ~done, count_ - 1);
      done |= bit(seed);
    }
    return best_;
  }

 private:
  void extend(uint64_t chosen, uint64_t candidates, int32_t missing) {
    if (--steps_ < 0 && best_ != 0) return;
    if (steps_ < -kStepsMax) return;
    if (missing == 0) {
      const Rating rating = rate(links_, usable_, chosen);
      if (best_ == 0 || rating < rating_) {
        best_ = chosen;
        rating_ = rating;
      }
      return;
    }
    for (; std::popcount(candidates) >= missing; candidates &= candidates - 1) {
      const std::size_t next = first_of(candidates);
      extend(chosen | bit(next), candidates & (candidates - 1) & linked_[next], missing - 1);
      if (steps_ < 0 && best_ != 0) return;
    }
  }

  const LinkMap& links_;
  const uint64_t usable_;
  const int32_t count_;
  std::array<uint64_t, limits::kDevicesPerNodeMax> linked_ = {};
  uint64_t best_ = 0;
  Rating rating_;
  int32_t steps_ = 0;
};

uint64_t pack(const LinkMap& links, uint64_t usable, int32_t count, int64_t bandwidth_min) {
  if (count < 2) {
    uint64_t best = 0;
    for (uint64_t rest = usable; count == 1 && rest != 0; rest &= rest - 1) {
      const uint64_t one = rest & (~rest + 1);
      if (best == 0 || rate(links, usable, one) < rate(links, usable, best)) best = one;
    }
    return best;
  }
  std::vector<int64_t> levels;
  for (uint64_t rest = usable; rest != 0; rest &= rest - 1) {
    for (uint64_t others = rest & (rest - 1); others != 0; others &= others - 1)
      levels.push_back(links.between(first_of(rest), first_of(others)).gbs);
  }
  std::sort(levels.begin(), levels.end(), std::greater<>());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  CliqueSearch search(links, usable, count);
  for (const int64_t level : levels) {
    if (level < bandwidth_min) break;
    if (const uint64_t found = search.at_least(level); found != 0) return found;
  }
  return 0;
}

// In turn from the domain of which least is chosen, then from that of which most is left.
uint64_t spread(const LinkMap& links, uint64_t usable, int32_t count) {
  uint64_t chosen = 0;
  bool joined = false;
  for (uint64_t rest = usable; rest != 0; rest &= rest - 1)
    joined = joined || std::popcount(links.island_of(first_of(rest))) > 1;
  const auto domain_of = [&](std::size_t device) {
    return joined ? links.island_of(device) : links.numa_of(device);
  };
  for (; count > 0; --count) {
    std::size_t best = limits::kDevicesPerNodeMax;
    std::tuple<int, int, int> best_rating;
    for (uint64_t rest = usable & ~chosen; rest != 0; rest &= rest - 1) {
      const std::size_t device = first_of(rest);
      const std::tuple<int, int, int> rating = {std::popcount(domain_of(device) & chosen),
                                                std::popcount(links.numa_of(device) & chosen),
                                                -std::popcount(domain_of(device) & usable & ~chosen)};
      if (best < limits::kDevicesPerNodeMax && !(rating < best_rating)) continue;
      best = device;
      best_rating = rating;
    }
    chosen |= bit(best);
  }
  return chosen;
}

uint64_t contiguous(const LinkMap& links, uint64_t usable, int32_t count, int64_t bandwidth_min) {
  uint64_t best = 0;
  const uint64_t run = count >= 64 ? ~uint64_t{0} : bit(static_cast<std::size_t>(count)) - 1;
  for (std::size_t at = 0; at + static_cast<std::size_t>(count) <= limits::kDevicesPerNodeMax; ++at) {
    const uint64_t mask = run << at;
    if ((mask & ~usable) != 0 || links.weakest(mask) < bandwidth_min) continue;
    // Beside what is taken, so that no hole is torn.
    const auto torn = [&](uint64_t of) { return std::popcount(((of << 1) | (of >> 1)) & usable & ~of); };
    const auto better = [&] {
      if (links.weakest(mask) != links.weakest(best)) return links.weakest(mask) > links.weakest(best);
      auto [islands, numas, in_islands, in_numas, low] = rate(links, usable, mask);
      auto [islands_b, numas_b, in_islands_b, in_numas_b, low_b] = rate(links, usable, best);
      return std::tuple(islands, numas, torn(mask), in_islands, in_numas, low) <
             std::tuple(islands_b, numas_b, torn(best), in_islands_b, in_numas_b, low_b);
    };
    if (best == 0 || better()) best = mask;
  }
  return best;
}

}  // namespace

DeviceChoice choose_devices(const LinkMap& links, uint64_t usable, const DeviceWish& wish) {
  const auto done = [&](uint64_t mask) { return DeviceChoice{.mask = mask, .weakest = links.weakest(mask)}; };
  if (wish.count <= 0 || std::popcount(usable) < wish.count) return {};
  if (wish.named != 0) {
    const bool there = (wish.named & ~usable) == 0 && std::popcount(wish.named) == wish.count;
    return there && links.weakest(wish.named) >= wish.bandwidth_min ? done(wish.named) : DeviceChoice{};
  }
  if (wish.layout == Layout::kContiguous)
    return done(contiguous(links, usable, wish.count, wish.bandwidth_min));
  if (links.empty()) return wish.bandwidth_min > 0 ? DeviceChoice{} : done(lowest(usable, wish.count));
  if (wish.layout == Layout::kSpread) {
    const uint64_t mask = spread(links, usable, wish.count);
    if (links.weakest(mask) >= wish.bandwidth_min) return done(mask);
  }
  return done(pack(links, usable, wish.count, wish.bandwidth_min));
}

std::size_t DeviceChooser::Hash::operator()(const Key& key) const {
  uint64_t hash = key.usable * 0x9e3779b97f4a7c15ULL;
  hash ^= (key.wish.named + (hash << 6) + (hash >> 2)) * 0xbf58476d1ce4e5b9ULL;
  hash ^= (static_cast<uint64_t>(key.wish.count) << 8) | static_cast<uint64_t>(key.wish.layout);
  hash ^= static_cast<uint64_t>(key.wish.bandwidth_min) << 24;
  hash *= 0x94d049bb133111ebULL;
  return static_cast<std::size_t>(hash ^ (hash >> 31));
}

uint32_t DeviceChooser::add(const Node& node) {
  LinkMap links(node);
  if (links.empty()) return 0;
  for (std::size_t build = 1; build < builds_.size(); ++build) {
    if (builds_[build].links == links) return static_cast<uint32_t>(build);
  }
  if (builds_.size() >= kBuildsMax) return 0;
  builds_.push_back({.links = std::move(links), .found = {}});
  return static_cast<uint32_t>(builds_.size() - 1);
}

DeviceChoice DeviceChooser::choose(uint32_t build, uint64_t usable, const DeviceWish& wish) {
  Build& of = builds_[build];
  if (build == 0) return choose_devices(of.links, usable, wish);
  const Key key{.usable = usable, .wish = wish};
  if (const auto known = of.found.find(key); known != of.found.end()) return known->second;
  if (of.found.size() >= kFoundMax) of.found.clear();
  return of.found.emplace(key, choose_devices(of.links, usable, wish)).first->second;
}

}  // namespace gpusched::policy
