#include "engine/policy/policies.h"

namespace gpusched::policy {
namespace {

Duration limit_of(const Job& job) {
  return job.max_runtime.ns > 0 ? job.max_runtime : LimitRunTimes::kUnlimitedRunTime;
}

}  // namespace

Duration LimitRunTimes::to_pass(const State& /*state*/, const Job& job, Time /*now*/) const {
  return limit_of(job);
}

Duration LimitRunTimes::of_running(const State& /*state*/, const Job& job, Duration /*elapsed*/,
                                   Time /*now*/) const {
  return limit_of(job);
}

}  // namespace gpusched::policy
