#include "engine/policy/policies.h"

namespace gpusched::policy {

Duration LimitRunTimes::expected(const State& state, const Job& job) const {
  static_cast<void>(state);
  return job.max_runtime.ns > 0 ? job.max_runtime : kUnlimitedRunTime;
}

}  // namespace gpusched::policy
