#pragma once

#include "engine/policy/policy.h"

namespace gpusched::policy {

/// All tenants stand in one line, in the order of jobs.
class PriorityAging final : public QueueOrder {
 public:
  std::string_view name() const override { return "priority_aging"; }
  QueueKey key(const LineView& line) const override;
};

/// The oldest job of all tenants' first ones, whatever its priority.
class Fifo final : public QueueOrder {
 public:
  std::string_view name() const override { return "fifo"; }
  QueueKey key(const LineView& line) const override;
};

/// The tenant's tier alone; within a tier the order of jobs.
class StrictPriority final : public QueueOrder {
 public:
  std::string_view name() const override { return "strict_priority"; }
  QueueKey key(const LineView& line) const override;
};

/// The tenant that has used least for its weight, at each level of the tree of tenants: the decayed use of
/// its dominant resource (Ghodsi et al. 2011, "Dominant resource fairness"), with what it holds now counted
/// as held for `kLookAhead` longer, divided by its weight. Siblings are compared with one another only, from
/// the root down (Slurm's fair tree).
class FairShare final : public QueueOrder {
 public:
  static constexpr Duration kLookAhead = hours(1);
  std::string_view name() const override { return "fair_share"; }
  QueueKey key(const LineView& line) const override;
  bool is_time_dependent() const override { return true; }
  bool is_tree() const override { return true; }
};

/// `weight / (recent use + cost) + gamma * wait`, the highest first: cheap jobs of tenants that used little,
/// and whoever waits long. Use in GPU hours, decayed; cost in GPUs of the job, at least one; gamma 0.01 for
/// each minute.
class CostAware final : public QueueOrder {
 public:
  std::string_view name() const override { return "cost_aware"; }
  QueueKey key(const LineView& line) const override;
  bool is_time_dependent() const override { return true; }
};

/// A job runs as long as it may; one without a limit as long as `kUnlimitedRunTime`.
class LimitRunTimes final : public RunTimes {
 public:
  static constexpr Duration kUnlimitedRunTime = hours(1);
  std::string_view name() const override { return "limits"; }
  Duration to_pass(const State& state, const Job& job, Time now) const override;
  Duration of_running(const State& state, const Job& job, Duration elapsed, Time now) const override;
};

/// Whole GPUs of one class, CPU, memory, and the number of attempts on a node.
class Capacity final : public Filter {
 public:
  std::string_view name() const override { return "capacity"; }
  Refusal check(const Part& part, const NodeView& node) const override;
};

/// Prefers the node on which least stays free: large holes stay for large jobs.
class BestFit final : public ScorePolicy {
 public:
  std::string_view name() const override { return "best_fit"; }
  Score score(const Part& part, const NodeView& node) const override;
};

/// Prefers the node on which the weakest link among the member's devices is strongest; of powers of two each
/// counts the same. Not for members of one device.
class StrongLinks final : public ScorePolicy {
 public:
  std::string_view name() const override { return "strong_links"; }
  Score score(const Part& part, const NodeView& node) const override;
};

}  // namespace gpusched::policy
