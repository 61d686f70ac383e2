#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/limits.h"

/// Tasks and nodes as placement by fragmentation sees them. Everything here is a value without time, chance
/// or pointers, so that a planner can keep it beside its own books and a test can try all cases.
namespace gpusched::policy {

/// Popular shapes that are looked at, the commonest.
inline constexpr std::size_t kPopularMax = 240;
/// A whole device, in thousandths.
inline constexpr int32_t kWholeMilli = 1000;

/// Request of one task to one node.
struct TaskShape {
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  int32_t gpu_count = 0;         ///< Devices; zero: none.
  int32_t gpu_milli = 0;         ///< Share of each device; kWholeMilli if gpu_count > 1; 0: no devices.
  int64_t device_memory_mb = 0;  ///< Memory of each device; zero: whatever the share has.
  uint64_t device_classes = ~uint64_t{0};  ///< Bit k: may run on devices of class k. Ignored without devices.

  bool is_share() const { return gpu_count == 1 && gpu_milli < kWholeMilli; }
  int64_t total_milli() const { return int64_t{gpu_count} * gpu_milli; }
  friend auto operator<=>(const TaskShape&, const TaskShape&) = default;
};

/// Rest of a node, with devices of one class. A device that may not be used now (hot, sick, draining) is one
/// with nothing left; a node with devices of several classes is several of these.
struct NodeSpace {
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  uint32_t device_class = 0;
  uint32_t device_count = 0;                                            ///< At most kDevicesPerNodeMax.
  std::array<uint16_t, limits::kDevicesPerNodeMax> milli{};             ///< 0 to kWholeMilli, by device.
  std::array<uint32_t, limits::kDevicesPerNodeMax> device_memory_mb{};  ///< By device; all zero: not counted.

  friend bool operator==(const NodeSpace&, const NodeSpace&) = default;
};

/// Whether `device` has enough left for one of the shape's devices.
bool device_fits(const TaskShape& shape, const NodeSpace& node, uint32_t device);
/// Whether the task could run there now.
bool fits(const TaskShape& shape, const NodeSpace& node);
/// The devices that a task would get: of a share the one named, of whole ones the first free ones. A bit
/// mask; zero without devices. The task fits, on that device (CHECK).
uint64_t devices_for(const TaskShape& shape, const NodeSpace& node, uint32_t share_device);
/// Takes what the task needs from the node, on `devices` as from `devices_for`.
void take(const TaskShape& shape, uint64_t devices, NodeSpace& node);
/// Gives it back.
void give_back(const TaskShape& shape, uint64_t devices, NodeSpace& node);

/// A shape and how often it comes, against others in the same table.
struct PopularShape {
  TaskShape shape;
  uint64_t weight = 0;
};

/// Learns what arrives. Old arrivals are forgotten: whenever `kWindow` are counted all counts are halved, so
/// what came `kWindow` arrivals ago weighs at most half. At most `kShapesMax` shapes are told apart; further
/// ones are not counted until room is made by forgetting. Not thread-safe.
class ShapePopularity {
 public:
  static constexpr uint64_t kWindow = 16'384;
  static constexpr std::size_t kShapesMax = 1'024;

  void arrived(const TaskShape& shape);
  /// All arrivals ever.
  uint64_t arrivals() const { return arrivals_; }
  /// True when a table made after `at_arrivals` is due to be made again: as soon as twice as many have come,
  /// or `kRenewEvery` more.
  bool is_due(uint64_t at_arrivals) const;
  /// The commonest shapes up to `per_mille` of what is counted, the commonest first; ties by shape.
  std::vector<PopularShape> commonest(uint32_t per_mille) const;

 private:
  static constexpr uint64_t kFirstTable = 16;
  static constexpr uint64_t kRenewEvery = 4'096;
  struct Counted {
    TaskShape shape;
    uint64_t count = 0;
  };
  std::vector<Counted> counted_;  ///< By shape.
  uint64_t total_ = 0;
  uint64_t arrivals_ = 0;
};

/// The commonest of `counted` up to `per_mille` of all weight, at most kPopularMax. Those of
/// weight zero are left out.
std::vector<PopularShape> commonest_of(std::vector<PopularShape> counted, uint32_t per_mille);

}  // namespace gpusched::policy
