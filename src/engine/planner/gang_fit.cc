#include "engine/planner/gang_fit.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {
namespace {

constexpr DomainLevel kLevels[] = {DomainLevel::kRack, DomainLevel::kBlock, DomainLevel::kZone,
                                   DomainLevel::kAny};

/// The widest domains that the gang may be in.
DomainLevel widest_of(const GangWish& wish) { return wish.required ? wish.domain : DomainLevel::kAny; }

/// The domains of this level that may be chosen, the tightest of those with room for all first.
std::vector<uint32_t> candidates(const DomainTree& tree, const GangRoom& room, DomainLevel level,
                                 int64_t members) {
  if (level == DomainLevel::kAny)
    return room.total() >= members ? std::vector<uint32_t>{DomainTree::kCluster} : std::vector<uint32_t>{};
  std::vector<uint32_t> found;
  for (uint32_t index = 1; index < tree.domains().size(); ++index) {
    const DomainTree::Domain& domain = tree[index];
    if (domain.level == level && domain.named && room.of_domain(index) >= members) found.push_back(index);
  }
  std::sort(found.begin(), found.end(), [&](uint32_t a, uint32_t b) {
    const int64_t one = room.of_domain(a);
    const int64_t other = room.of_domain(b);
    return one != other ? one < other : tree[a].path < tree[b].path;
  });
  return found;
}

/// Shares the members out over the domain, level by level.
void spread(const DomainTree& tree, const GangRoom& room, uint32_t index, int64_t members,
            std::vector<GangSpot>& spots) {
  const DomainTree::Domain& domain = tree[index];
  const bool of_nodes = domain.level == DomainLevel::kRack;
  std::vector<uint32_t> children;
  std::vector<int64_t> rooms;
  for (const uint32_t child : domain.children) {
    const int64_t one = of_nodes ? room.of_node(child) : room.of_domain(child);
    if (one <= 0) continue;
    children.push_back(child);
    rooms.push_back(one);
  }
  const std::vector<int32_t> counts = share_out(rooms, members);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    if (of_nodes) {
      spots.push_back({.slot = children[i], .members = counts[i]});
    } else {
      spread(tree, room, children[i], counts[i], spots);
    }
  }
}

std::optional<uint32_t> tightest_node(const GangRoom& room, int64_t members) {
  std::optional<uint32_t> best;
  for (uint32_t slot = 0; slot < room.node_count(); ++slot) {
    if (room.of_node(slot) < members) continue;
    if (!best.has_value() || room.of_node(slot) < room.of_node(*best)) best = slot;
    if (room.of_node(*best) == members) break;
  }
  return best;
}

}  // namespace

void GangRoom::add(const DomainTree& tree, uint32_t slot, int64_t members) {
  for (uint32_t at = tree.rack_of(slot); at != DomainTree::kNone; at = tree[at].parent) {
    if (at >= sums_.size()) sums_.resize(tree.domains().size(), 0);
    sums_[at] += members;
  }
}

void GangRoom::follow(const DomainTree& tree) {
  if (version_ == tree.version()) return;
  version_ = tree.version();
  sums_.assign(tree.domains().size(), 0);
  for (uint32_t slot = 0; slot < rooms_.size(); ++slot) {
    if (rooms_[slot] > 0) add(tree, slot, rooms_[slot]);
  }
}

void GangRoom::set(const DomainTree& tree, uint32_t slot, int32_t members) {
  CHECK(members >= 0);
  follow(tree);
  if (slot >= rooms_.size()) {
    if (of_count_.empty()) of_count_.resize(1);
    of_count_[0] += slot + 1 - static_cast<uint32_t>(rooms_.size());
    rooms_.resize(slot + 1, 0);
  }
  const int32_t before = std::exchange(rooms_[slot], members);
  if (before == members) return;
  if (static_cast<std::size_t>(members) >= of_count_.size())
    of_count_.resize(static_cast<std::size_t>(members) + 1);
  --of_count_[static_cast<std::size_t>(before)];
  ++of_count_[static_cast<std::size_t>(members)];
  add(tree, slot, int64_t{members} - before);
}

int32_t GangRoom::most_of_a_node() const {
  for (std::size_t count = of_count_.size(); count-- > 1;) {
    if (of_count_[count] > 0) return static_cast<int32_t>(count);
  }
  return 0;
}

int64_t GangRoom::most_of(const DomainTree& tree, DomainLevel level) const {
  if (level == DomainLevel::kAny) return total();
  int64_t most = most_of_a_node();
  for (uint32_t index = 1; index < tree.domains().size(); ++index) {
    if (tree[index].level <= level && tree[index].named) most = std::max(most, of_domain(index));
  }
  return most;
}

std::vector<int32_t> share_out(const std::vector<int64_t>& rooms, int64_t members) {
  std::vector<int32_t> counts(rooms.size(), 0);
  if (members == 0) return counts;
  std::vector<std::size_t> order(rooms.size());  // The largest first.
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(-rooms[a], a) < std::pair(-rooms[b], b); });
  std::size_t used = 0;
  for (int64_t sum = 0; sum < members; ++used) {
    CHECK(used < order.size());
    sum += rooms[order[used]];
  }
  const auto shares = static_cast<int64_t>(used);
  const int64_t each = members / shares;
  const int64_t larger = members % shares;  // Number of shares that get one more.
  const bool even = rooms[order[used - 1]] >= each &&
                    (larger == 0 || rooms[order[static_cast<std::size_t>(larger) - 1]] > each);
  if (even) {
    // The tightest that will do: from the smallest room up, of equal ones the first.
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return std::pair(rooms[a], a) < std::pair(rooms[b], b); });
    int64_t left = larger;
    for (auto at = order.begin(); at != order.end() && left > 0; ++at) {
      if (rooms[*at] <= each) continue;
      counts[*at] = static_cast<int32_t>(each + 1);
      --left;
    }
    left = shares - larger;
    for (auto at = order.begin(); at != order.end() && left > 0; ++at) {
      if (rooms[*at] < each || counts[*at] > 0) continue;
      counts[*at] = static_cast<int32_t>(each);
      --left;
    }
    return counts;
  }
  // The smallest is filled, and the others share the rest.
  int64_t rest = members;
  for (std::size_t i = used; i-- > 0;) {
    const int64_t mine = std::min(rooms[order[i]], rest / static_cast<int64_t>(i + 1));
    counts[order[i]] = static_cast<int32_t>(mine);
    rest -= mine;
  }
  CHECK(rest == 0);
  return counts;
}

std::optional<GangFit> fit_gang(const DomainTree& tree, const GangRoom& room, const GangWish& wish) {
  const DomainLevel widest = widest_of(wish);
  const int64_t most = room.most_of(tree, widest);
  if (most < wish.members_min) return std::nullopt;
  GangFit fit{.members = static_cast<int32_t>(std::min<int64_t>(most, wish.members_max))};
  if (room.most_of_a_node() >= fit.members) {
    const std::optional<uint32_t> slot = tightest_node(room, fit.members);
    CHECK(slot.has_value());
    fit.level = DomainLevel::kNode;
    fit.spots.push_back({.slot = *slot, .members = fit.members});
    return fit;
  }
  CHECK(widest != DomainLevel::kNode);
  for (const DomainLevel level : kLevels) {
    const std::vector<uint32_t> found = candidates(tree, room, level, fit.members);
    if (!found.empty()) {
      fit.level = level;
      spread(tree, room, found.front(), fit.members, fit.spots);
      return fit;
    }
    CHECK(level != widest);
  }
  UNREACHABLE();
}

namespace {

/// Ways to share the other parts' members out that are searched one by one.
constexpr std::size_t kGangStatesMax = 1'024;
constexpr std::size_t kGangWorkMax = 8'000'000;

/// Some members of the other parts on a node, by part.
using Counts = std::vector<int32_t>;

/// The other parts' members on nodes of a domain, so that most of the main part fit beside them.
struct Packing {
  int64_t main = 0;
  std::vector<std::pair<uint32_t, Counts>> others;  ///< Where there are any.
};

/// Numbers every way to have at most so many members of each part.
class States {
 public:
  explicit States(const Counts& most) : most_(most) {
    for (const int32_t count : most) {
      strides_.push_back(size_);
      size_ = size_ > kGangStatesMax ? size_ : size_ * (static_cast<std::size_t>(count) + 1);
    }
  }
  std::size_t size() const { return size_; }
  Counts counts_of(std::size_t state) const {
    Counts counts;
    for (std::size_t i = most_.size(); i-- > 0;) {
      counts.insert(counts.begin(), static_cast<int32_t>(state / strides_[i]));
      state %= strides_[i];
    }
    return counts;
  }
  /// `state` has at least what `part` has of each.
  bool holds(std::size_t state, std::size_t part) const {
    const Counts all = counts_of(state);
    const Counts some = counts_of(part);
    return std::equal(all.begin(), all.end(), some.begin(), [](int32_t a, int32_t b) { return a >= b; });
  }

 private:
  Counts most_;
  std::vector<std::size_t> strides_;
  std::size_t size_ = 1;
};

/// The best of all ways: node by node, for each number of members that are placed by then, the most of the
/// main part that fit beside them.
std::optional<Packing> pack_exactly(const std::vector<uint32_t>& nodes, const States& states,
                                    const RoomBeside& beside) {
  constexpr int64_t kNot = -1;
  std::vector<int64_t> best(states.size(), kNot);
  best[0] = 0;
  std::vector<std::vector<bool>> holds(states.size(), std::vector<bool>(states.size()));
  std::vector<Counts> counts;
  for (std::size_t state = 0; state < states.size(); ++state) {
    counts.push_back(states.counts_of(state));
    for (std::size_t part = 0; part <= state; ++part) holds[state][part] = states.holds(state, part);
  }
  std::vector<std::vector<uint16_t>> taken;  // By node and state: what this node has of it.
  for (const uint32_t slot : nodes) {
    std::vector<std::pair<uint16_t, int32_t>> options;
    for (std::size_t part = 0; part < states.size(); ++part) {
      const int32_t room = beside(slot, counts[part]);
      if (room >= 0) options.emplace_back(static_cast<uint16_t>(part), room);
    }
    std::vector<int64_t> next(states.size(), kNot);
    std::vector<uint16_t>& mine = taken.emplace_back(states.size(), uint16_t{0});
    for (std::size_t state = 0; state < states.size(); ++state) {
      for (const auto& [part, room] : options) {
        if (part > state || !holds[state][part] || best[state - part] == kNot) continue;
        if (best[state - part] + room <= next[state]) continue;
        next[state] = best[state - part] + room;
        mine[state] = part;
      }
    }
    best = std::move(next);
  }
  std::size_t state = states.size() - 1;
  if (best[state] == kNot) return std::nullopt;
  Packing packing{.main = best[state], .others = {}};
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const uint16_t part = taken[i][state];
    if (part > 0) packing.others.emplace_back(nodes[i], counts[part]);
    state -= part;
  }
  std::reverse(packing.others.begin(), packing.others.end());
  return packing;
}

/// As many of each other part as fit on each node, one node after the other.
std::optional<Packing> pack_greedily(const std::vector<uint32_t>& nodes, Counts left,
                                     const RoomBeside& beside) {
  Packing packing;
  for (const uint32_t slot : nodes) {
    Counts here(left.size(), 0);
    for (std::size_t part = 0; part < left.size(); ++part) {
      while (left[part] > 0) {
        ++here[part];
        if (beside(slot, here) < 0) {
          --here[part];
          break;
        }
        --left[part];
      }
    }
    packing.main += std::max(beside(slot, here), 0);
    const bool some = std::any_of(here.begin(), here.end(), [](int32_t count) { return count > 0; });
    if (some) packing.others.emplace_back(slot, here);
  }
  const bool all = std::all_of(left.begin(), left.end(), [](int32_t count) { return count == 0; });
  return all ? std::optional(packing) : std::nullopt;
}

std::optional<Packing> pack(const std::vector<uint32_t>& nodes, const Counts& others,
                            const RoomBeside& beside) {
  const States states(others);
  const bool exact = states.size() <= kGangStatesMax &&
                     states.size() * states.size() * std::max<std::size_t>(nodes.size(), 1) <= kGangWorkMax;
  return exact ? pack_exactly(nodes, states, beside) : pack_greedily(nodes, others, beside);
}

/// The main part's members go where the others have left room.
GangFit fit_beside(const DomainTree& tree, const GangRoom& room, uint32_t domain, int32_t members,
                   const Packing& packing, std::size_t parts, const RoomBeside& beside) {
  GangFit fit{.level = tree[domain].level, .members = members, .other_spots = {}};
  fit.other_spots.resize(parts);
  GangRoom left = room;
  for (const auto& [slot, counts] : packing.others) {
    left.set(tree, slot, std::max(beside(slot, counts), 0));
    for (std::size_t part = 0; part < parts; ++part) {
      if (counts[part] > 0) fit.other_spots[part].push_back({.slot = slot, .members = counts[part]});
    }
  }
  spread(tree, left, domain, members, fit.spots);
  return fit;
}

std::optional<GangFit> fit_on_a_node(const GangRoom& room, int32_t members, const Counts& others,
                                     const RoomBeside& beside) {
  std::optional<uint32_t> best;
  for (uint32_t slot = 0; slot < room.node_count(); ++slot) {
    if (room.of_node(slot) < members) continue;
    if (best.has_value() && room.of_node(*best) <= room.of_node(slot)) continue;
    if (beside(slot, others) >= members) best = slot;
  }
  if (!best.has_value()) return std::nullopt;
  GangFit fit{.level = DomainLevel::kNode, .members = members, .other_spots = {}};
  fit.spots.push_back({.slot = *best, .members = members});
  for (const int32_t count : others) fit.other_spots.push_back({{.slot = *best, .members = count}});
  return fit;
}

/// How many of the main part fit at most, with all others, in one domain that the gang may be in.
int64_t most_beside(const DomainTree& tree, const GangRoom& room, const GangWish& wish, const Counts& others,
                    const RoomBeside& beside) {
  const DomainLevel widest = widest_of(wish);
  int64_t most = -1;
  for (uint32_t slot = 0; slot < room.node_count(); ++slot) {
    if (room.of_node(slot) > most) most = std::max<int64_t>(most, beside(slot, others));
  }
  for (const DomainLevel level : kLevels) {
    const bool beyond = widest != DomainLevel::kAny && (level > widest || level == DomainLevel::kAny);
    if (beyond || (widest == DomainLevel::kAny && level != widest)) continue;
    for (const uint32_t domain :
         candidates(tree, room, level, std::max(most + 1, int64_t{wish.members_min}))) {
      if (room.of_domain(domain) <= most) continue;
      const std::optional<Packing> packing = pack(tree.nodes_of(domain), others, beside);
      if (packing.has_value()) most = std::max(most, packing->main);
    }
  }
  return most;
}

}  // namespace

std::optional<GangFit> fit_parts(const DomainTree& tree, const GangRoom& room, const GangWish& wish,
                                 const std::vector<int32_t>& others, const RoomBeside& beside) {
  int32_t members = wish.members_min;
  if (wish.members_max > wish.members_min) {
    const int64_t most = most_beside(tree, room, wish, others, beside);
    if (most < wish.members_min) return std::nullopt;
    members = static_cast<int32_t>(std::min<int64_t>(most, wish.members_max));
  }
  if (auto fit = fit_on_a_node(room, members, others, beside)) return fit;
  const DomainLevel widest = widest_of(wish);
  if (widest == DomainLevel::kNode) return std::nullopt;
  for (const DomainLevel level : kLevels) {
    for (const uint32_t domain : candidates(tree, room, level, members)) {
      const std::optional<Packing> packing = pack(tree.nodes_of(domain), others, beside);
      if (!packing.has_value() || packing->main < members) continue;
      return fit_beside(tree, room, domain, members, *packing, others.size(), beside);
    }
    if (level == widest) return std::nullopt;
  }
  UNREACHABLE();
}

}  // namespace gpusched
