#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/cluster.h"

/// Links between the devices of a node. Pure; values.
namespace gpusched {

/// The slowest part of the way from one device to another, worst first.
enum class LinkKind : uint8_t {
  kUnknown = 0,
  kSystem,      ///< Through CPU sockets ("SYS").
  kNuma,        ///< Through host bridges of one NUMA node ("NODE").
  kHostBridge,  ///< Through one host bridge ("PHB").
  kBridges,     ///< Over several PCIe bridges ("PXB").
  kSwitch,      ///< Over one PCIe switch ("PIX").
  kNvlink,      ///< "NV4": so many NVLinks.
  kXgmi,
};
inline constexpr LinkKind kLinkKindLast = LinkKind::kXgmi;
std::string_view to_string(LinkKind kind);

/// The link between two devices: its kind, and its bandwidth in one direction in GB/s, 0 where that is not
/// known.
struct Link {
  LinkKind kind = LinkKind::kUnknown;
  int64_t gbs = 0;

  /// Returns the code that Node::links keeps and agents send.
  int64_t code() const { return gbs * 16 + static_cast<int64_t>(kind); }
  /// Returns the link of a valid code; an unknown link otherwise.
  static Link of(int64_t code);
  static bool is_sound(int64_t code);
  /// Joins devices to an island.
  bool joins() const { return kind == LinkKind::kNvlink || kind == LinkKind::kXgmi; }
  friend bool operator==(const Link&, const Link&) = default;
};

/// Pairs of so many devices.
constexpr std::size_t pair_count(std::size_t devices) {
  return devices < 2 ? 0 : devices * (devices - 1) / 2;
}
/// Returns the index of the link of two different devices: (0,1) (0,2) ... (1,2) ...
std::size_t pair_index(std::size_t a, std::size_t b, std::size_t devices);

/// A node's links, ready to be asked often.
class LinkMap {
 public:
  LinkMap() = default;
  explicit LinkMap(const Node& node);

  /// Returns whether neither links nor NUMA nodes are known.
  bool empty() const { return links_.empty() && !knows_numa_; }
  std::size_t size() const { return island_.size(); }
  Link between(std::size_t a, std::size_t b) const;
  /// The least bandwidth between any two devices in `mask`; 0: fewer than two, or not known.
  int64_t weakest(uint64_t mask) const;
  /// The devices that are joined to this one by NVLink or xGMI, directly or over others, with itself.
  uint64_t island_of(std::size_t device) const {
    return device < island_.size() ? island_[device] : uint64_t{1} << device;
  }
  /// The devices of its NUMA node, with itself; of an unknown one only itself.
  uint64_t numa_of(std::size_t device) const {
    return device < numa_.size() ? numa_[device] : uint64_t{1} << device;
  }
  friend bool operator==(const LinkMap&, const LinkMap&) = default;

 private:
  std::vector<Link> links_;
  std::vector<uint64_t> island_;
  std::vector<uint64_t> numa_;
  bool knows_numa_ = false;
};

/// The node has the label as it is asked for; an operator's labels stand over the agent's.
bool has_label(const Node& node, const LabelTerm& term);
/// The node's labels are as the request wants them, and the job does not avoid the node.
bool place_allows(const Node& node, const PlaceRequest& request);
/// The node's devices that the request names; 0 when it does not have all of them.
uint64_t named_devices(const Node& node, const PlaceRequest& request);
/// The devices in `mask` lie as the part asks for: which they are, without a gap, linked well enough. How
/// they are spread or packed is a matter of liking and not looked at.
bool satisfies_requested_layout(const Node& node, const Part& part, uint64_t mask);
/// Nothing runs on the node but so many of the members that it is held by or promised to, and nothing that
/// ran there is left on its devices.
bool runs_nothing_but(const Node& node, std::size_t members);

}  // namespace gpusched
