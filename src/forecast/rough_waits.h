#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/state.h"

namespace gpusched::forecast {

/// Rough waits of jobs that no forecast knows yet. All that runs is expected to end by its limit, or to run
/// twice as long as it has run; what is free then is taken by the jobs before it as a fluid that fills every
/// GPU. Kinds of GPUs, nodes, quotas and priorities to come are not in it. A value; costs a walk over nodes
/// and attempts to make, and kSteps to read.
class RoughWaits {
 public:
  static constexpr std::size_t kSteps = 64;          ///< Ends of attempts are put together into so many.
  static constexpr std::size_t kClassesLooked = 64;  ///< Kinds of waiting jobs that are looked at.

  /// Knows nothing.
  RoughWaits() = default;
  RoughWaits(const State& state, Time now);

  /// Wait from `now` of a job that needs so many thousandths of GPUs and has `jobs_ahead` waiting jobs before
  /// it. Nothing when the nodes in service never have so many.
  std::optional<Duration> wait(int64_t gpu_milli, int64_t jobs_ahead, Time now) const;

 private:
  struct Step {
    Time at;
    int64_t gpu_milli = 0;  ///< Thousandths of GPUs that come back.
  };
  void expect_ends(const State& state, Time now);
  void look_at_waiting(const State& state);

  bool has_nodes_ = false;
  int64_t total_milli_ = 0;
  int64_t free_milli_ = 0;
  int64_t work_ = 0;  ///< Thousandths of GPUs times seconds, of one waiting job.
  Time made_at_;
  std::vector<Step> steps_;  ///< In order.
};

}  // namespace gpusched::forecast
