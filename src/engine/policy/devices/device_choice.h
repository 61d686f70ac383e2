#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <vector>

#include "model/topology.h"

/// Which of a node's free devices a member gets. Pure.
namespace gpusched::policy {

/// What is asked of a choice.
struct DeviceWish {
  int32_t count = 0;
  Layout layout = Layout::kPack;
  int64_t bandwidth_min = 0;  ///< In GB/s, between any two.
  uint64_t named = 0;         ///< Given: exactly these.

  friend bool operator==(const DeviceWish&, const DeviceWish&) = default;
};

/// Devices, and the least bandwidth between any two of them; no devices: it cannot be met.
struct DeviceChoice {
  uint64_t mask = 0;
  int64_t weakest = 0;
};

/// Of the `usable` devices, `count` of them:
/// * pack: no other choice has a stronger weakest link. Among equals the fewest islands, then NUMA nodes,
///   then what leaves least behind in them, then the lowest indexes. Of more than `kExactMax` usable devices
///   with links that are neither alike nor in clean islands, the search may end early and be content.
/// * spread: over as many islands, or NUMA nodes where there are none, as there are, evenly.
/// * contiguous: neighbours by index; among those as for pack.
inline constexpr int kExactMax = 8;
DeviceChoice choose_devices(const LinkMap& links, uint64_t usable, const DeviceWish& wish);

/// The same, remembered: nodes that are built alike share what was found. Not thread-safe.
class DeviceChooser {
 public:
  /// Knows the node from now on; what it returns names its build. 0: nothing is known of its links.
  uint32_t add(const Node& node);
  DeviceChoice choose(uint32_t build, uint64_t usable, const DeviceWish& wish);
  /// Some node's links are known.
  bool knows_any() const { return builds_.size() > 1; }
  const LinkMap& links(uint32_t build) const { return builds_[build].links; }

 private:
  struct Key {
    uint64_t usable = 0;
    DeviceWish wish;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  struct Build {
    LinkMap links;
    boost::unordered_flat_map<Key, DeviceChoice, Hash> found;
  };
  std::vector<Build> builds_ = std::vector<Build>(1);
};

}  // namespace gpusched::policy
