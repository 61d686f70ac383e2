#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/policy/policy.h"

/// The order in which a tenant's jobs are looked at.
namespace gpusched::policy {

/// Priority, the tenant's tier and what waiting has earned, then submission: the line that the state keeps.
class PriorityFirst final : public JobOrder {
 public:
  std::string_view name() const override { return "priority_aging"; }
  bool uses_static_order() const override { return true; }
  int64_t rank(const State& state, const Job& job, const RunTimes& run_times, Time now) const override;
};

/// The earliest deadline first (Liu, Layland 1973); jobs without one behind, as they came.
class DeadlineFirst final : public JobOrder {
 public:
  std::string_view name() const override { return "deadline"; }
  int64_t rank(const State& state, const Job& job, const RunTimes& run_times, Time now) const override;
};

/// The least that is left of `GPUs x expected run time`, what the job attained taken off (Gu et al. 2019,
/// "Tiresias", section 3.1: shortest remaining service first). A job without GPUs counts as one.
class ShortestFirst final : public JobOrder {
 public:
  std::string_view name() const override { return "shortest"; }
  int64_t rank(const State& state, const Job& job, const RunTimes& run_times, Time now) const override;
  bool is_time_dependent() const override { return true; }
};

/// The level on which a job stands that has held so many GPU-milliseconds: how many of the thresholds, in
/// GPU-seconds and rising, it has reached. 0 is the first.
int64_t attained_level(const std::vector<int64_t>& levels, int64_t gpu_ms);

/// The lowest level first, within a level as they came: two-dimensional least attained service, discretised
/// (Gu et al. 2019, "Tiresias", section 3.2.1). Knows nothing of how long jobs take.
class LeastAttainedFirst final : public JobOrder {
 public:
  /// `levels` as in SchedulingPolicy.
  explicit LeastAttainedFirst(std::vector<int64_t> levels) : levels_(std::move(levels)) {}
  std::string_view name() const override { return "least_attained"; }
  int64_t rank(const State& state, const Job& job, const RunTimes& run_times, Time now) const override;

 private:
  std::vector<int64_t> levels_;
};

}  // namespace gpusched::policy
