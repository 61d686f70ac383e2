#pragma once

#include "engine/policy/policy.h"

namespace gpusched::policy {

/// Priority, tier and aging over all tenants, then submission.
class PriorityAging final : public QueueOrder {
 public:
  std::string_view name() const override { return "priority_aging"; }
  QueueKey key(const LineView& line) const override;
};

/// A job runs as long as it may; one without a limit as long as `kUnlimitedRunTime`.
class LimitRunTimes final : public RunTimes {
 public:
  static constexpr Duration kUnlimitedRunTime = hours(1);
  std::string_view name() const override { return "limits"; }
  Duration expected(const State& state, const Job& job) const override;
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

}  // namespace gpusched::policy
