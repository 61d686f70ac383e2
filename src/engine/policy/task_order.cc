#include "engine/policy/task_order.h"

#include <algorithm>

namespace gpusched::policy {
namespace {

__extension__ using Wide = __int128;

constexpr int64_t kNsPerSecond = 1'000'000'000;

}  // namespace

Duration TaskOrder::delay_of(const TaskFacts& task, int64_t use_milli) const {
  const Wide spent = Wide{use_milli} + task.cost_milli;
  const Wide score_ns = Wide{task.weight_milli} * 1'000 * kNsPerSecond / (spent * gamma_milli);
  const Wide delay = Wide{delay_max().ns} - score_ns;
  return {.ns = static_cast<int64_t>(std::max(delay, Wide{0}))};
}

Duration TaskOrder::delay_max() const { return {.ns = weight_milli_max * kNsPerSecond / gamma_milli}; }

}  // namespace gpusched::policy
