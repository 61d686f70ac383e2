#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/planner/domain_tree.h"

/// Where the members of a gang go (docs/adr/gangs.md#place-a-gang-whole-in-the-smallest-domain).
///
/// Problem: a job of several members is of no use in part, is slow over slow links, and runs at the pace of
/// its most crowded node.
/// Idea: the planner keeps how many members each node, and so each rack, block and zone, has room for. Places
/// are arithmetic on these numbers: the smallest level of which one domain holds all; of such domains the
/// tightest; in it as few of its own domains, then nodes, as can be; over these as evenly as can be; of the
/// choices that are left the tightest.
/// Example: 12 members, and one rack whose nodes have room for 8, 6, 7 and 6. No node holds them, the rack
/// does. Two nodes are the fewest, 6 and 6 the most even; the tightest nodes for that are the second and the
/// fourth: 0, 6, 0, 6.
/// Cost: O(nodes + domains log domains) at worst; 64 members over 10,000 nodes are placed in 0.04 ms
/// (`tools/bench gang`). Several unlike parts are searched exactly while they are few; see `fit_parts`.
namespace gpusched {

/// How many members of one part each node has room for, and each domain.
class GangRoom {
 public:
  /// Sets the node's room; everything again where nodes moved within the tree.
  void set(const DomainTree& tree, uint32_t slot, int32_t members);
  /// The same after nodes moved.
  void follow(const DomainTree& tree);

  int32_t of_node(uint32_t slot) const { return slot < rooms_.size() ? rooms_[slot] : 0; }
  int64_t of_domain(uint32_t domain) const { return domain < sums_.size() ? sums_[domain] : 0; }
  int64_t total() const { return of_domain(DomainTree::kCluster); }
  /// The most that one node has.
  int32_t most_of_a_node() const;
  /// The most that one node or one named domain has, up to this level; of kAny: the cluster.
  int64_t most_of(const DomainTree& tree, DomainLevel level) const;
  uint32_t node_count() const { return static_cast<uint32_t>(rooms_.size()); }

 private:
  void add(const DomainTree& tree, uint32_t slot, int64_t members);

  std::vector<int32_t> rooms_;
  std::vector<int64_t> sums_;       ///< By domain.
  std::vector<uint32_t> of_count_;  ///< By room: how many nodes have it.
  uint64_t version_ = 0;
};

/// A number of members on one node.
struct GangSpot {
  uint32_t slot = 0;
  int32_t members = 0;

  friend bool operator==(const GangSpot&, const GangSpot&) = default;
};

/// A part of which members can be put beside those of others: what one with `counts[i]` members of the other
/// part i on the node could still hold of the main one there; negative: not even those.
using RoomBeside = std::function<int32_t(uint32_t slot, const std::vector<int32_t>& counts)>;

/// The widest domain that its members may share.
inline DomainLevel widest_of(const Part& part) {
  return part.domain_required ? part.domain : DomainLevel::kAny;
}

struct GangWish {
  int32_t members_min = 1;
  int32_t members_max = 1;
  /// Not beyond one of these, when it is required. A node of one smaller domain is in one of these, whether
  /// that has a name or not.
  DomainLevel domain = DomainLevel::kAny;
  bool required = false;
};

struct GangFit {
  DomainLevel level = DomainLevel::kAny;  ///< Level of the domain that holds it.
  int32_t members = 0;
  std::vector<GangSpot> spots;                     ///< Places of the main part, by domain and node.
  std::vector<std::vector<GangSpot>> other_spots;  ///< Places of each other part.
};

/// Finds places for all members of one part; none: they do not fit. O(nodes + domains log domains) at worst.
std::optional<GangFit> fit_gang(const DomainTree& tree, const GangRoom& room, const GangWish& wish);

/// The same for several parts. `room` is the main part's, if it were alone; `others` says how many members
/// each other part has. Exact while the other parts have few members (a leader beside workers); of many they
/// are put on the nodes one after the other, as many as fit, and what would fit otherwise may be missed.
std::optional<GangFit> fit_parts(const DomainTree& tree, const GangRoom& room, const GangWish& wish,
                                 const std::vector<int32_t>& others, const RoomBeside& beside);

/// How `members` are shared out over what has so much room each: over as few as can be, as evenly as can be,
/// and of those that are left the tightest. In the rooms' order; their sum must do.
std::vector<int32_t> share_out(const std::vector<int64_t>& rooms, int64_t members);

}  // namespace gpusched
