#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/policy/fragmentation/shapes.h"

/// Fragmentation as published: Weng, Yang, Yu, Wang, Tang, Yang, Zhang 2023, "Beware of fragmentation:
/// scheduling GPU-sharing workloads with fragmentation gradient descent" (USENIX ATC), section 4.
namespace gpusched::policy {

/// Part of a node's free GPU shares that the popular shapes could not use. For shape m of popularity p_m,
/// node n with free shares g_i: F_n(m) is the sum of g_i if m asks for no GPU or cannot run on n by CPU,
/// class or devices, else the sum of the g_i that are less than m wants of one; F_n = sum of p_m F_n(m).
/// Memory is not looked at, as published. Immutable; thread-safe.
class FragmentationTable {
 public:
  /// Amounts are thousandths of a device times this.
  static constexpr int64_t kUnit = int64_t{1} << 20;

  /// Weights count against their sum. Without any shape everything is fragmented.
  explicit FragmentationTable(std::span<const PopularShape> shapes);

  /// F_n.
  int64_t fragmented(const NodeSpace& node) const;
  /// F_n after the task was placed on `devices` (of `devices_for`), less F_n before: its gradient.
  int64_t growth(const TaskShape& shape, uint64_t devices, const NodeSpace& node) const;

 private:
  static constexpr uint32_t kClasses = 64;
  static constexpr uint32_t kWholeCounts = limits::kDevicesPerNodeMax + 1;
  int64_t usable(const NodeSpace& node) const;
  std::size_t row(uint32_t device_class, int64_t cpu_milli) const;

  std::vector<int64_t> cpu_steps_;      ///< CPU requests of popular shapes, ascending.
  std::vector<uint8_t> step_of_milli_;  ///< By free milli: how many of the asked-for sizes it has room for.
  uint32_t milli_steps_ = 0;
  std::vector<uint32_t> row_of_class_;  ///< Classes that all shapes treat alike share their rows.
  /// By row (class, CPU step): popularity of the one-device shapes that fit into a hole, by its step; then
  /// that of the shapes of several devices, by the number of free ones.
  std::vector<int64_t> one_device_;
  std::vector<int64_t> several_;
};

/// The published score: int(100 / (1 + exp(growth / 1000 milli))), for growth in units of the table. 0..100,
/// the higher is better; it is this coarseness that the published results depend on.
int32_t published_score(int64_t growth);

}  // namespace gpusched::policy
