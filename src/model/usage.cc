#include "model/usage.h"

#include <algorithm>

#include "base/limits.h"

namespace gpusched {

void Usage::add(const Usage& member) {
  const auto sum = [](int64_t a, int64_t b) { return std::min(a + b, limits::kUsageMax); };
  peak_memory_bytes = std::max(peak_memory_bytes, member.peak_memory_bytes);
  peak_of_process = peak_of_process || member.peak_of_process;
  cpu_time = Duration{sum(cpu_time.ns, member.cpu_time.ns)};
  gpu_busy_ms = sum(gpu_busy_ms, member.gpu_busy_ms);
  gpu_watched_ms = sum(gpu_watched_ms, member.gpu_watched_ms);
  peak_gpu_memory_mb = std::max(peak_gpu_memory_mb, member.peak_gpu_memory_mb);
}

}  // namespace gpusched
