#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/policy/fragmentation/shapes.h"

/// Values a node's space by the tasks that are expected.
namespace gpusched::policy {

/// Prices of holes: what what fits into a hole of each size is worth, if all that comes had to be packed into
/// as few devices as can be. They are the dual prices of the linear program of cutting stock (Gilmore, Gomory
/// 1961): each size has a price, the fullest pattern of a device costs 1, and demand is worth as much as
/// possible. Found by multiplicative weights (Plotkin, Shmoys, Tardos 1995) in whole numbers, approximately.
/// A hole of 190 is worth nothing where hardly anything so small comes; of 530, half a device where halves
/// come.
class HolePrices {
 public:
  /// A whole device, when anything that comes fits one.
  static constexpr int64_t kUnit = int64_t{1} << 20;

  explicit HolePrices(std::span<const PopularShape> shapes);
  /// Price of a hole of `milli`; grows with it, from 0 to kUnit.
  int64_t of(int32_t milli) const { return price_[static_cast<std::size_t>(milli)]; }

 private:
  std::array<int64_t, kWholeMilli + 1> price_{};
};

/// Value of a node's space for the expected tasks: the prices of its holes that somebody could still use, by
/// CPU, memory and class, `hole_weight` times; and, averaged over the popular shapes, the share of its
/// devices that would be used if only that shape came, limited by what runs out first: CPU, memory or devices
/// (so a GPU whose CPU is gone is worth little, and CPU beside full GPUs nothing). Immutable; thread-safe.
class SpaceValue {
 public:
  /// One thousandth of a device.
  static constexpr int64_t kUnit = int64_t{1} << 20;
  struct Params {
    int64_t hole_weight = 4;
    /// Shapes of several devices weigh so many times as often as they come, not once. Where tasks end, a
    /// large one that is rare waits long for a whole node; where none ends, it takes what it finds, and this
    /// costs room.
    bool weigh_by_devices = false;
  };

  SpaceValue(std::span<const PopularShape> shapes, Params params);

  int64_t of(const NodeSpace& node) const;

  /// Value of a node after a task was placed on it, for each way to do so: CPU, memory and class are looked
  /// at once, devices for each way. Refers to value and node. Not thread-safe.
  class After {
   public:
    /// The task fits on the node.
    After(const SpaceValue& value, const TaskShape& shape, const NodeSpace& node);
    /// With the task on these devices (of `devices_for`).
    int64_t on(uint64_t devices) const;

   private:
    const SpaceValue& value_;
    const TaskShape& shape_;
    const NodeSpace& node_;
    struct Limit {
      uint32_t wanted = 0;
      int64_t tasks = 0;
    };
    std::array<Limit, kPopularMax> limits_;
    std::size_t limits_count_ = 0;
    int32_t smallest_ = 0;
    std::array<uint16_t, kPopularMax> times_{};
    int32_t whole_ = 0;
    int64_t holes_ = 0;
  };

 private:
  struct Wanted {
    int64_t cpu_milli = 0;
    int64_t memory_mb = 0;
    int64_t cpu_reciprocal = 0;  ///< Reciprocal of its CPU request, in 2^-kReciprocalBits; 0: none.
    int64_t memory_reciprocal = 0;
    int64_t worth = 0;   ///< Popularity times what one such task uses.
    uint32_t level = 0;  ///< Level of one device's share; several devices: their number.
    bool several = false;
    int32_t milli = 0;
    uint64_t device_classes = 0;
  };
  const uint16_t* row(int32_t milli) const {
    return times_.data() + static_cast<std::size_t>(milli) * width_;
  }

  std::vector<Wanted> wanted_;
  std::vector<int32_t> levels_;      ///< Shares that are asked for, ascending.
  std::size_t width_ = 0;            ///< Width of a row: levels, rounded up to kRowGrain.
  std::vector<uint16_t> times_;      ///< By free milli and level: how many fit into the hole.
  std::vector<int64_t> hole_value_;  ///< By free milli.
};

}  // namespace gpusched::policy
