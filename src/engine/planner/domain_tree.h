#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/cluster.h"

namespace gpusched {

/// Where nodes are: cluster, zones, blocks, racks and the nodes in them, by the nodes' labels. A node whose
/// labels leave a level out is in a domain of that level without a name, which is nobody's choice: it only
/// keeps such nodes together below what is above them. Not thread-safe.
class DomainTree {
 public:
  static constexpr uint32_t kCluster = 0;  ///< The root's index.
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Domain {
    DomainLevel level = DomainLevel::kAny;  ///< kAny: the cluster.
    uint32_t parent = kNone;
    bool named = false;
    std::string path;                ///< Names of its levels, from the zone down.
    std::vector<uint32_t> children;  ///< Domains by path; of a rack the slots of its nodes, ascending.
  };

  DomainTree() : domains_(1) {}
  /// Puts the node where its labels say, out of where it was.
  void put(const SchedulingPolicy& policy, const Node& node);

  const std::vector<Domain>& domains() const { return domains_; }
  const Domain& operator[](uint32_t index) const { return domains_[index]; }
  /// The rack that the node is in; kNone: it was never put anywhere.
  uint32_t rack_of(uint32_t slot) const { return slot < racks_.size() ? racks_[slot] : kNone; }
  /// Changes whenever a node comes to another place.
  uint64_t version() const { return version_; }
  /// Whether some node has a label of this level.
  bool has_named(DomainLevel level) const { return level == DomainLevel::kNode || named_of(level) > 0; }
  /// The slots of all nodes below, rack by rack.
  std::vector<uint32_t> nodes_of(uint32_t domain) const;

 private:
  int64_t named_of(DomainLevel level) const { return named_nodes_[static_cast<std::size_t>(level)]; }
  uint32_t child_of(uint32_t parent, DomainLevel level, bool named, const std::string& name);
  void count_named(uint32_t rack, int64_t change);

  std::vector<Domain> domains_;
  std::unordered_map<std::string, uint32_t> by_path_;  ///< Looked up, never walked.
  std::vector<uint32_t> racks_;                        ///< By slot.
  int64_t named_nodes_[static_cast<std::size_t>(kDomainLevelLast) + 1] = {};
  uint64_t version_ = 1;
};

}  // namespace gpusched
