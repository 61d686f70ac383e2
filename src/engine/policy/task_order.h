#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/time.h"

/// The order of many small tasks of several users within one tenant (docs/policies.md, "Tasks of agents").
namespace gpusched::policy {

/// Facts of one task for the order of tasks. `user` lives as long as the specification that was read.
struct TaskFacts {
  std::string_view user;
  int64_t cost_milli = 1'000;   ///< Thousandths of a token; positive.
  int64_t weight_milli = 1000;  ///< Weight of the user, positive.
};

/// Says which jobs are tasks, by their packed specifications, which the engine does not know. Pure;
/// thread-safe.
class TaskReader {
 public:
  virtual ~TaskReader() = default;
  /// Nothing: the job is no task.
  virtual std::optional<TaskFacts> read(std::string_view spec) const = 0;
};

/// Among a tenant's tasks that wait, the first is the one with the highest
/// `weight / (use of its user in the window + cost) + gamma * waited`. Said as a delay: a task stands where a
/// job would that came so much later. So nobody is overtaken by tasks that came later than the longest delay.
struct TaskOrder {
  std::shared_ptr<const TaskReader> reader;
  Duration window = minutes(5);     ///< At least a second.
  int64_t gamma_milli = 100;        ///< Thousandths a second, positive.
  int64_t weight_milli_max = 1000;  ///< The largest of all weights.

  /// `use_milli`: the costs of the user's tasks that were placed within the window. From zero to `delay_max`.
  Duration delay_of(const TaskFacts& task, int64_t use_milli) const;
  Duration delay_max() const;
};

}  // namespace gpusched::policy
