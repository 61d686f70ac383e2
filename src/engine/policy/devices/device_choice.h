#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <vector>

#include "model/topology.h"

/// The choice of a node's free devices for a member (docs/adr/waiting-jobs.md). Pure.
///
/// Problem: GPUs of one node are linked unequally, a job over several runs at the pace of its weakest link,
/// and a careless choice splits the islands that later jobs want.
/// Idea: the best weakest link is searched from the strongest bandwidth down: the first bandwidth whose links
/// have a clique of the wanted size is it. Among equal sets the one that leaves least behind in its islands.
/// Example: islands {0,1,2,3} and {4,5,6,7}, 300 GB/s within and 16 between; 0, 2, 3, 4 and 5 are free, two
/// are wanted. {0,2}, {0,3}, {2,3} and {4,5} all have 300; {4,5} leaves nothing behind in its island, and is
/// taken.
/// Cost: exact for up to `kExactMax` usable devices and for clean islands, bounded beyond; `DeviceChooser`
/// remembers answers by build, at most 256 for each wish on nodes of eight devices.
namespace gpusched::policy {

/// Wishes for a choice of devices.
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

/// Chooses `count` of the `usable` devices:
/// * pack: no other choice has a stronger weakest link. Among equals the fewest islands, then NUMA nodes,
///   then what leaves least behind in them, then the lowest indexes. With over `kExactMax` usable devices
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
