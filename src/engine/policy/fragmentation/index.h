#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/policy/fragmentation/rules.h"

namespace gpusched::policy {

/// Finds the best node for a task among many, again and again, while nodes change one by one
/// (docs/policies.md, "Where a task fragments least").
///
/// Problem: a rule's rate of one node costs microseconds; rating thousands of nodes for each task is too
/// slow.
/// Idea: for each shape that is asked for, the rates of all nodes in a tournament, a tree whose parents have
/// the higher of two. Only nodes that changed since that shape was asked for last are rated again, nodes with
/// equal space share one rating, and the answer is at the root.
/// Example: four nodes rate 3, 7, 5, 7 for half a GPU: the winners are 7 and 7, the root is the second node,
/// the lower slot of two equal ones. A task is put there, and its rate falls to 4: one rating and two
/// comparisons later the root is the fourth.
/// Cost: one rating and O(log nodes) for each node that changed; 512 shapes are kept. It always gives what
/// rating every node would: the highest rate, then the lowest slot. Deterministic. Not thread-safe.
class FragmentationIndex {
 public:
  struct Found {
    uint32_t slot = 0;
    PlacementRate rate;
    uint64_t devices = 0;  ///< Devices to take.
    friend bool operator==(const Found&, const Found&) = default;
  };
  /// How many shapes are kept; the one that was not asked for the longest makes room.
  static constexpr std::size_t kShapesMax = 512;
  /// Nodes turned down by `accept` that are passed over in one question.
  static constexpr std::size_t kTurnedDownMax = limits::kCandidatesMax;

  /// Indexes nodes, or a class of nodes. `rule` outlives the index or the next `use`.
  explicit FragmentationIndex(const PlacementRule& rule) : rule_(&rule) {}

  /// From now on by another rule, or the same with other tables: all ratings are made again as they are asked
  /// for.
  void use(const PlacementRule& rule);

  /// Sets the rest of a node: a new slot, or a change of an old one. Slots are dense: at most one beyond the
  /// last.
  void put(uint32_t slot, const NodeSpace& node);
  /// The node takes nothing until it is put again.
  void remove(uint32_t slot);
  const NodeSpace& node(uint32_t slot) const { return nodes_[slot].space; }
  std::size_t size() const { return nodes_.size(); }

  /// The best node that the task fits on; nothing: there is none.
  std::optional<Found> best(const TaskShape& shape);
  /// The best that `accept` takes; a node that it turns down is passed over, for this question only.
  std::optional<Found> best(const TaskShape& shape, const std::function<bool(const Found&)>& accept);

  /// How often a rule was asked, in all: what sharing and remembering save.
  uint64_t ratings() const { return ratings_; }

 private:
  static constexpr int32_t kNone = INT32_MIN;
  static constexpr uint32_t kGone = UINT32_MAX;
  /// Equal spaces, devices in any order, have equal keys. 128 bits of hash: unequal ones never meet in
  /// practice.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return static_cast<std::size_t>(key.low); }
  };
  struct Held {
    NodeSpace space;
    Key key;
    uint64_t changed = 0;  ///< Number of the change.
    int64_t standing = 0;  ///< Standing by the rule, if `stands`.
    bool stands = false;   ///< It was computed since the node changed.
    bool present = false;
  };
  struct Shape {
    TaskShape shape;
    uint64_t seen = 0;          ///< Changes up to this one are in.
    uint64_t asked = 0;         ///< Number of the question.
    std::size_t leaves = 0;     ///< A power of two.
    std::vector<int32_t> tree;  ///< Rates; of node i at [leaves + i], a parent has the higher of two.
    boost::unordered_flat_map<Key, int32_t, KeyHash> known;
  };

  static Key key_of(const NodeSpace& node);
  void note(uint32_t slot);
  Shape& shape_of(const TaskShape& shape);
  void catch_up(Shape& shape);
  void grow(Shape& shape);
  int32_t value_of(Shape& shape, uint32_t slot);
  int64_t standing_of(Held& held) const;
  static void set(Shape& shape, uint32_t slot, int32_t value);
  static uint32_t winner(const Shape& shape);
  Found found_at(const Shape& shape, uint32_t slot);

  const PlacementRule* rule_;
  std::vector<Held> nodes_;
  std::vector<uint32_t> changes_;  ///< Slots in the order of their changes.
  uint64_t first_change_ = 0;      ///< Number of the first of these; older ones were dropped.
  uint64_t questions_ = 0;
  uint64_t ratings_ = 0;
  std::map<TaskShape, std::size_t> numbers_;
  std::vector<Shape> shapes_;
};

}  // namespace gpusched::policy
