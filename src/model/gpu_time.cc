#include <algorithm>

#include "model/cluster.h"

namespace gpusched {

int64_t GpuTime::used_by(Time now, int64_t gpus) const {
  if (now <= at) return used_ms;
  const int64_t window = now.ns / length.ns;
  if (at.valid() && at.ns / length.ns == window) return used_ms + gpus * (now.ms() - at.ms());
  // What was used of earlier windows is over with them.
  return gpus * (now.ms() - Time{window * length.ns}.ms());
}

void GpuTime::settle(int64_t gpus, Time now) {
  if (!limited() || now <= at) return;
  used_ms = used_by(now, gpus);
  at = now;
}

}  // namespace gpusched
