#include <algorithm>

#include "model/cluster.h"

namespace gpusched {
namespace {

struct Used {
  int64_t ms = 0;
  int64_t rest = 0;  ///< Thousandths.
};

/// What is used of the window of `now` by then.
Used used_of(const GpuTime& gpu_time, Time now, const Amount& held) {
  if (now <= gpu_time.at) return {.ms = gpu_time.used_ms, .rest = gpu_time.rest};
  const int64_t window = now.ns / gpu_time.length.ns;
  const bool same = gpu_time.at.valid() && gpu_time.at.ns / gpu_time.length.ns == window;
  // What was used of earlier windows is over with them.
  const Time begin = same ? gpu_time.at : Time{window * gpu_time.length.ns};
  const int64_t span_ms = now.ms() - begin.ms();
  const int64_t of_shares = held.gpu_milli * span_ms + (same ? gpu_time.rest : 0);
  return {.ms = (same ? gpu_time.used_ms : 0) + held.gpus * span_ms + of_shares / kMilliPerGpu,
          .rest = of_shares % kMilliPerGpu};
}

}  // namespace

int64_t GpuTime::used_by(Time now, const Amount& held) const { return used_of(*this, now, held).ms; }

void GpuTime::settle(const Amount& held, Time now, bool keeps_rest) {
  if (!limited() || now <= at) return;
  const Used used = used_of(*this, now, held);
  used_ms = used.ms;
  rest = keeps_rest ? used.rest : 0;
  at = now;
}

}  // namespace gpusched
