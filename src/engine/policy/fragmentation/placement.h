#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/policy/fragmentation/index.h"
#include "engine/policy/fragmentation/rules.h"
#include "engine/policy/fragmentation/shapes.h"

namespace gpusched::policy {

/// Finds where a task fragments a cluster least, for a planner: keeps what nodes have left, learns which
/// shapes arrive, and makes its rule's tables again when that is due, which takes milliseconds.
///
/// A copy goes on by itself: it shares only the rule's tables, which never change. Deterministic. Not
/// thread-safe.
class FragmentationPlacement {
 public:
  struct Found {
    uint32_t node = 0;  ///< As it was put.
    uint32_t device_class = 0;
    uint64_t devices = 0;  ///< Devices to take: for a share its device, for whole ones the first free ones.
  };
  using Accept = std::function<bool(const Found&)>;

  /// "fgd" or "least_value_lost"; nothing for any other name.
  static std::optional<FragmentationPlacement> make(std::string_view name);

  /// A task has come. Room is kept for tasks that come often.
  void arrived(const TaskShape& shape);
  /// Forgets all arrivals; they are told again: shapes name other classes of devices now.
  void forget_arrivals();

  /// All that a node has left: an entry for each class of its devices, one without devices when it has none.
  /// Empty: it takes nothing. Nodes are small numbers.
  void put(uint32_t node, const std::vector<NodeSpace>& spaces);

  /// The best place that `accept` takes. Nothing: there is none, or so many better ones were turned down
  /// (FragmentationIndex::kTurnedDownMax) that the caller is to look by itself.
  std::optional<Found> best(const TaskShape& shape, const Accept& accept);

 private:
  enum class Rule : uint8_t { kGradient, kLeastValueLost };
  struct Place {
    uint32_t node = 0;
    uint32_t device_class = 0;
    bool present = false;
  };

  explicit FragmentationPlacement(Rule rule);
  std::shared_ptr<const PlacementRule> make_rule() const;
  uint32_t place_of(uint32_t node, uint32_t device_class);

  Rule rule_;
  ShapePopularity popularity_;
  std::shared_ptr<const PlacementRule> tables_;  ///< Made of the popular shapes.
  FragmentationIndex index_;                     ///< By the tables.
  uint64_t made_at_ = 0;                         ///< Arrivals when `tables_` was made.
  std::vector<Place> places_;                    ///< By slot of the index.
  std::vector<std::vector<uint32_t>> slots_of_node_;
};

}  // namespace gpusched::policy
