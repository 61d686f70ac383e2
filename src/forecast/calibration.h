#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace gpusched::forecast {

/// Holds the coverage of an estimated wait where it was promised. Runs of the engine know nothing of what is
/// submitted later, so jobs wait longer than they say where others keep coming, and shorter where people give
/// up. The length of past waits, as shares of their estimates, says by how much: the next estimate is
/// multiplied by the share that the promised part of them did not exceed (split conformal prediction over the
/// newest waits: Papadopoulos et al. 2002, "Inductive confidence machines for regression"). In whole numbers;
/// pure; not thread-safe.
class WaitCalibration {
 public:
  static constexpr std::size_t kWindow = 500;  ///< The newest waits that count.
  static constexpr std::size_t kLeast = 10;    ///< Minimum number of outcomes for a correction.
  /// Added to both before they are compared: a second more or less does not matter.
  static constexpr Duration kSlack = seconds(1);

  explicit WaitCalibration(int32_t per_mille) : per_mille_(per_mille) {}

  /// A job of which it was estimated that it would wait for `estimated` has waited for `waited`. The estimate
  /// as it was before it was calibrated.
  void add(Duration estimated, Duration waited);
  /// Returns the corrected estimate of a wait; not negative, monotonic in the estimate.
  Duration told(Duration estimated) const;

 private:
  /// Ratio in millionths.
  int64_t factor() const;

  int32_t per_mille_;
  std::vector<int64_t> shares_;  ///< Ratios in millionths; a ring buffer once it is full.
  std::size_t next_ = 0;
  mutable int64_t factor_ = 0;  ///< Quantile of these ratios; 0: not computed yet.
};

}  // namespace gpusched::forecast
