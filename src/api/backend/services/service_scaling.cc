#include "api/backend/services/service_scaling.h"

#include <algorithm>

namespace gpusched::api {

int64_t wanted_replicas(const ServiceScaling& scaling, int64_t waiting) {
  const int64_t rounded_up = waiting / scaling.per_replica + (waiting % scaling.per_replica != 0 ? 1 : 0);
  return std::clamp(rounded_up, scaling.min, scaling.max);
}

ScaleStep plan_scale(const ServiceScaling& scaling, int64_t replicas, int64_t waiting,
                     const std::optional<Lull>& before, Time now) {
  const int64_t wanted = wanted_replicas(scaling, waiting);
  if (wanted > replicas) return {.replicas = wanted};
  if (wanted == replicas) return {};
  Lull lull = before && before->from == replicas ? *before : Lull{.since = now, .from = replicas};
  lull.most = std::max(lull.most, wanted);
  const Time over = lull.since + scaling.down_after;
  if (now >= over) return {.replicas = lull.most, .lull = lull};
  return {.lull = lull, .look_again = over};
}

}  // namespace gpusched::api
