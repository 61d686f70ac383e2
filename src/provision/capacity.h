#pragma once

#include <cstdint>
#include <vector>

#include "model/cluster.h"

namespace gpusched::provision {

/// Free resources of one node, or of one that is coming, from which members of waiting jobs are taken on
/// trial. Knows no MIG slices, reservations or links: what asks for these fits nowhere. Not thread-safe.
class Capacity {
 public:
  Capacity(Node node, const std::vector<DeviceClass>& classes) : node_(std::move(node)), classes_(classes) {}

  /// Takes a member of `part`; false, and nothing taken: it does not fit. `job` tells members of one job from
  /// those of others, for parts with one member a node.
  bool take(const Part& part, uint64_t job);
  bool used() const { return used_; }

 private:
  bool has_devices(const Part& part, uint64_t& devices) const;

  Node node_;
  std::vector<DeviceClass> classes_;
  uint64_t last_job_ = 0;
  int64_t taken_ = 0;
  bool used_ = false;
  bool exclusive_ = false;
};

/// Whether a member of `part` could ever run on such a node, as far as Capacity knows.
bool could_hold(const Node& node, const std::vector<DeviceClass>& classes, const Part& part);

}  // namespace gpusched::provision
