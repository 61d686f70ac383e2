#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gpusched::predict {

/// How long a job may run: what similar work took, each with its weight. All times in whole milliseconds,
/// shares in thousandths. A value; immutable once made.
class RunTimes {
 public:
  struct Sample {
    int64_t run_ms = 0;
    uint64_t weight = 0;
  };

  /// Knows nothing.
  RunTimes() = default;
  /// Makes a distribution of one certain run time.
  static RunTimes exactly(int64_t run_ms);
  /// From weighted observations in any order. Those of weight zero do not count. At most 1,024 of them, each
  /// of a weight below 2^44, so that no sum overflows.
  static RunTimes of(std::vector<Sample> samples);

  bool empty() const { return samples_.empty(); }
  /// Returns the samples, sorted by run time.
  const std::vector<Sample>& samples() const { return samples_; }

  /// The shortest run time that at least `per_mille` of the weight does not exceed; 0 when nothing is known.
  int64_t quantile_ms(int32_t per_mille) const;
  /// The same for a job that has run for `elapsed_ms` and goes on: only longer runs count. It is the whole
  /// run, so more than `elapsed_ms`. Nothing when no similar work ever ran that long.
  std::optional<int64_t> quantile_after_ms(int64_t elapsed_ms, int32_t per_mille) const;
  /// The mean of the logarithms: what is typical when run times spread over orders of magnitude. Runs count
  /// as `floor_ms` longer than they are, so that a second more or less does not matter.
  int64_t typical_ms(int64_t floor_ms) const;
  /// The mean, which long runs dominate; 0 when nothing is known.
  int64_t mean_ms() const;
  /// The share of the weight whose runs are longer than `run_ms`.
  int32_t per_mille_longer_than(int64_t run_ms) const;

 private:
  std::vector<Sample> samples_;
  uint64_t total_ = 0;
};

}  // namespace gpusched::predict
