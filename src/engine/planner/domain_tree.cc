#include "engine/planner/domain_tree.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched {

uint32_t DomainTree::child_of(uint32_t parent, DomainLevel level, bool named, const std::string& name) {
  const std::string path = domains_[parent].path + (named ? "\n=" + name : std::string("\n-"));
  const auto known = by_path_.find(path);
  if (known != by_path_.end()) return known->second;
  const auto index = static_cast<uint32_t>(domains_.size());
  domains_.push_back(Domain{.level = level, .parent = parent, .named = named, .path = path, .children = {}});
  // By name, whatever came first: what is chosen among equal ones depends on the cluster alone.
  std::vector<uint32_t>& siblings = domains_[parent].children;
  siblings.insert(
      std::lower_bound(siblings.begin(), siblings.end(), path,
                       [&](uint32_t one, const std::string& other) { return domains_[one].path < other; }),
      index);
  by_path_[path] = index;
  return index;
}

void DomainTree::count_named(uint32_t rack, int64_t change) {
  for (uint32_t at = rack; at != kCluster; at = domains_[at].parent) {
    if (domains_[at].named) named_nodes_[static_cast<std::size_t>(domains_[at].level)] += change;
  }
}

void DomainTree::put(const SchedulingPolicy& policy, const Node& node) {
  uint32_t at = kCluster;
  for (const DomainLevel level : {DomainLevel::kZone, DomainLevel::kBlock, DomainLevel::kRack}) {
    const std::string* value = node.label(policy.domain_label(level));
    at = child_of(at, level, value != nullptr, value != nullptr ? *value : std::string());
  }
  if (node.slot >= racks_.size()) racks_.resize(node.slot + 1, kNone);
  const uint32_t before = racks_[node.slot];
  if (before == at) return;
  if (before != kNone) {
    std::erase(domains_[before].children, node.slot);
    count_named(before, -1);
  }
  std::vector<uint32_t>& nodes = domains_[at].children;
  nodes.insert(std::lower_bound(nodes.begin(), nodes.end(), node.slot), node.slot);
  count_named(at, 1);
  racks_[node.slot] = at;
  ++version_;
}

std::vector<uint32_t> DomainTree::nodes_of(uint32_t domain) const {
  if (domains_[domain].level == DomainLevel::kRack) return domains_[domain].children;
  std::vector<uint32_t> nodes;
  for (const uint32_t child : domains_[domain].children) {
    const std::vector<uint32_t> below = nodes_of(child);
    nodes.insert(nodes.end(), below.begin(), below.end());
  }
  return nodes;
}

}  // namespace gpusched
