#pragma once

#include <cstdint>
#include <optional>

#include "api/contract/services.h"
#include "base/time.h"

/// How many replicas a service has that follows a queue. Pure functions: the clock is an argument.
namespace gpusched::api {

/// A time in which fewer replicas than there are would have been enough.
struct Lull {
  Time since;
  int64_t from = 0;  ///< The number of replicas that was too many; another one begins another lull.
  int64_t most = 0;  ///< The largest number that was wanted meanwhile.

  friend bool operator==(const Lull&, const Lull&) = default;
};

/// One replica for each `per_replica` jobs that wait, rounded up, within the bounds.
int64_t wanted_replicas(const ServiceScaling& scaling, int64_t waiting);

struct ScaleStep {
  std::optional<int64_t> replicas = {};  ///< Their number from now on; absent: as many as there are.
  std::optional<Lull> lull = {};         ///< To be given to the next call.
  Time look_again = kNever;              ///< When it changes though the queue does not.
};
/// More replicas at once; fewer when fewer have been enough for `down_after`, and then the largest number
/// that was wanted in that time.
ScaleStep plan_scale(const ServiceScaling& scaling, int64_t replicas, int64_t waiting,
                     const std::optional<Lull>& before, Time now);

}  // namespace gpusched::api
