#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/policy/task_order.h"

namespace gpusched::api {

/// Tasks as the scheduler's order of them sees them, by the labels of their jobs: the user and the tokens
/// that a task costs, with the load to a GPU that was learned of such tasks (kTaskLoadLabel): between one and
/// two times its type's. Immutable: thread-safe.
class TaskLabels final : public policy::TaskReader {
 public:
  using Numbers = std::map<std::string, int64_t, std::less<>>;
  /// `costs`: tokens by type, 1 of types that it does not name. `weights_milli`: thousandths by user, 1000 of
  /// users that it does not name.
  TaskLabels(Numbers costs, Numbers weights_milli)
      : costs_(std::move(costs)), weights_milli_(std::move(weights_milli)) {}

  std::optional<policy::TaskFacts> read(std::string_view spec) const override;
  /// The largest weight that a user has.
  int64_t weight_milli_max() const;

 private:
  const Numbers costs_, weights_milli_;
};

}  // namespace gpusched::api
