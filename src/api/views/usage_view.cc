#include "api/views/usage_view.h"

namespace gpusched::api {
namespace {

/// "83.4", without a zero behind the point.
std::string tenths(int64_t value) {
  const std::string whole = std::to_string(value / 10);
  return value % 10 == 0 ? whole : whole + '.' + std::to_string(value % 10);
}

/// Rounded down: busy / watched in thousandths, without an overflow of large sums.
int32_t permille(int64_t busy, int64_t watched) {
  const int64_t unit = watched >= 1'000'000'000'000 ? watched / 1'000'000 : 1;
  return static_cast<int32_t>(busy / unit * 1'000 / (watched / unit));
}

}  // namespace

UsageView usage_view(const AttemptUsage& usage) {
  const Usage& total = usage.total;
  UsageView view;
  if (!total.is_known()) return view;
  if (total.peak_memory_bytes > 0) {
    view.peak_memory_bytes = total.peak_memory_bytes;
    view.peak_memory_of = total.peak_of_process ? "largest_process" : "all_processes";
  }
  if (total.cpu_time.ns > 0) view.cpu_ms = total.cpu_time.ms();
  if (total.gpu_watched_ms > 0) view.gpu_use_permille = permille(total.gpu_busy_ms, total.gpu_watched_ms);
  if (total.peak_gpu_memory_mb > 0) view.peak_gpu_memory_mb = total.peak_gpu_memory_mb;
  view.members_unknown = static_cast<int32_t>(usage.members_unknown);
  return view;
}

std::string usage_sentence(const UsageView& usage) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (usage.peak_memory_bytes) add("memory up to " + std::to_string(*usage.peak_memory_bytes >> 20) + " MB");
  if (usage.cpu_ms) add(tenths(*usage.cpu_ms / 100) + " s of CPU time");
  if (usage.gpu_use_permille) add("GPUs " + tenths(*usage.gpu_use_permille) + " % busy");
  if (usage.peak_gpu_memory_mb) add("GPU memory up to " + std::to_string(*usage.peak_gpu_memory_mb) + " MB");
  return text;
}

}  // namespace gpusched::api
