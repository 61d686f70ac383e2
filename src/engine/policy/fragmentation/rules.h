#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "engine/policy/fragmentation/gradient.h"
#include "engine/policy/fragmentation/holes.h"
#include "engine/policy/fragmentation/shapes.h"

/// The choice of a task's node, as a rate for each node that it fits: the highest wins, then the node that
/// stands first. A share also gets its device.
namespace gpusched::policy {

struct PlacementRate {
  int32_t value = 0;    ///< Higher is better; comparable between nodes for one shape only.
  uint32_t device = 0;  ///< Where a share goes; without meaning for others.
  friend bool operator==(const PlacementRate&, const PlacementRate&) = default;
};

class PlacementRule {
 public:
  virtual ~PlacementRule() = default;
  virtual std::string_view name() const = 0;
  /// Standing of a node before anything is placed on it, whatever the task: computed once for all tasks.
  virtual int64_t standing(const NodeSpace& /*node*/) const { return 0; }
  /// The task fits on the node (`fits`), which stands as `standing` says. Nodes with equal space, devices in
  /// any order, rate equally. Thread-safe.
  virtual PlacementRate rate(const TaskShape& shape, const NodeSpace& node, int64_t standing) const = 0;
};

/// The device with the smallest hole that takes the share, the first of equal ones.
uint32_t tightest_device(const TaskShape& shape, const NodeSpace& node);

/// Best fit as in the published comparison: half of what CPU stays free, as part of 128 cores, and half of
/// what GPU stays free, as part of 8, in whole per cent; the less the better. A share goes to the tightest
/// device.
class PublishedBestFit final : public PlacementRule {
 public:
  std::string_view name() const override { return "best_fit"; }
  PlacementRate rate(const TaskShape& shape, const NodeSpace& node, int64_t standing) const override;
};

/// GPU packing as in the published comparison: devices in use first, the fullest; then free devices of nodes
/// in use, then free nodes, the smallest. Tasks without GPUs go anywhere.
class GpuPacking final : public PlacementRule {
 public:
  std::string_view name() const override { return "gpu_packing"; }
  PlacementRate rate(const TaskShape& shape, const NodeSpace& node, int64_t standing) const override;
};

/// Fragmentation gradient descent with the published quantised score (`published_score`), 0..100.
class FragmentationGradient final : public PlacementRule {
 public:
  explicit FragmentationGradient(std::span<const PopularShape> shapes) : table_(shapes) {}
  std::string_view name() const override { return "fgd"; }
  int64_t standing(const NodeSpace& node) const override { return table_.fragmented(node); }
  PlacementRate rate(const TaskShape& shape, const NodeSpace& node, int64_t standing) const override;

 private:
  FragmentationTable table_;
};

/// Where the node's space loses least of its worth to what comes (`SpaceValue`), in steps of `quantum`, minus
/// so many. Equal within a step are equal: the order of nodes then packs the first of them.
class LeastValueLost final : public PlacementRule {
 public:
  struct Params {
    SpaceValue::Params value;
    int64_t quantum_milli = 5;
  };
  LeastValueLost(std::span<const PopularShape> shapes, Params params)
      : value_(shapes, params.value), quantum_(params.quantum_milli * SpaceValue::kUnit) {}
  std::string_view name() const override { return "least_value_lost"; }
  int64_t standing(const NodeSpace& node) const override { return value_.of(node); }
  PlacementRate rate(const TaskShape& shape, const NodeSpace& node, int64_t standing) const override;

 private:
  SpaceValue value_;
  int64_t quantum_;
};

}  // namespace gpusched::policy
