#include <algorithm>

#include "model/cluster.h"

namespace gpusched {

int64_t GpuTime::used_by(Time now, const Amount& held) const {
  if (now <= at) return used_ms;
  const int64_t window = now.ns / length.ns;
  if (at.valid() && at.ns / length.ns == window)
    return used_ms + gpu_ms_of(held, milliseconds(now.ms() - at.ms()));
  // What was used of earlier windows is over with them.
  return gpu_ms_of(held, milliseconds(now.ms() - Time{window * length.ns}.ms()));
}

void GpuTime::settle(const Amount& held, Time now) {
  if (!limited() || now <= at) return;
  used_ms = used_by(now, held);
  at = now;
}

}  // namespace gpusched
