#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/cluster.h"
#include "model/index/free_index.h"
#include "model/mig.h"

namespace gpusched {

/// Nodes by what is taken of their GPUs in MIG mode, so that the GPU on which the next slice loses least is
/// found without a look at any other. Copies share their charts, which never change. Not thread-safe.
class SliceIndex {
 public:
  /// Learns the kinds of devices that are new.
  void learn(const std::vector<DeviceClass>& kinds);
  /// Chart of a kind that was learned; null: it is not given away in slices.
  const mig::Chart* chart(uint32_t device_class) const {
    return device_class < kinds_.size() ? kinds_[device_class].chart.get() : nullptr;
  }

  /// The node has GPUs of that kind of these occupancies that take slices and have some; in the place of what
  /// it was said to have before.
  void put(uint32_t node, uint32_t device_class, std::span<const uint32_t> occupancies);
  /// The nodes that have one of that occupancy.
  const Bitmap& nodes(uint32_t device_class, uint32_t occupancy) const;
  bool any(uint32_t device_class, uint32_t occupancy) const {
    return !kinds_[device_class].counts.empty() && kinds_[device_class].counts[occupancy] > 0;
  }

 private:
  struct Kind {
    std::shared_ptr<const mig::Chart> chart;
    std::vector<Bitmap> nodes;                   ///< By occupancy.
    std::vector<uint32_t> counts;                ///< Nodes in each.
    std::vector<std::vector<uint32_t>> of_node;  ///< By node: where it stands, ascending.
  };
  std::vector<Kind> kinds_;
  Bitmap empty_;
};

}  // namespace gpusched
