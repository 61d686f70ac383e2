#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace gpusched {

/// Devices that may take a task, by the memory that they have left: a task goes to the one with the least
/// that is enough, among those that are not loaded yet. A change costs O(log n). Not thread-safe.
class TaskSpaces {
 public:
  struct Device {
    uint32_t device_class = 0;
    uint32_t index = 0;  ///< On its node.
    int64_t memory_mb = 0, memory_mb_left = 0;
    int32_t milli = 0;
    int64_t milli_left = 0;
  };
  struct Space {
    int64_t memory_mb_left = 0;
    uint32_t node = 0;
    uint32_t device = 0;
    friend auto operator<=>(const Space&, const Space&) = default;
  };

  /// `0.7 * memory share + 0.3 * compute share` is 0.85 or more.
  static bool is_loaded(const Device& device);

  /// The node has these devices that take shares; in the place of what it was said to have before.
  void put(uint32_t node, std::span<const Device> devices);
  /// The devices of a kind that are not loaded and have compute left: by memory left, ascending.
  const std::set<Space>& of(uint32_t device_class) const;

 private:
  using Place = std::pair<uint32_t, Space>;  ///< The kind, and where it stands there.
  std::vector<std::set<Space>> spaces_;      ///< By kind.
  std::vector<std::vector<Place>> places_;   ///< By node.
};

}  // namespace gpusched
