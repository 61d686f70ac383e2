#include "api/metrics/process_metrics.h"

#include <optional>
#include <utility>

#include "ops/process_usage.h"

namespace gpusched::api {

void add_process(MetricsView& metrics) {
  const auto add = [&metrics](std::string_view name, std::string_view type, std::string_view help,
                              std::optional<double> value) {
    if (!value) return;
    metrics.counters.push_back({.name = name, .type = type, .help = help, .real = value, .is_bare = true});
  };
  const ProcessUsage usage = process_usage();
  add("process_cpu_seconds_total", "counter", "CPU time used by the process.", usage.cpu_seconds);
  add("process_resident_memory_bytes", "gauge", "Resident memory of the process.", usage.resident_bytes);
  add("process_virtual_memory_bytes", "gauge", "Address space of the process.", usage.virtual_bytes);
  add("process_open_fds", "gauge", "Open files and connections of the process.", usage.open_files);
  add("process_max_fds", "gauge", "Maximum number of open files and connections of the process.",
      usage.max_files);
  add("process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970.",
      usage.start_time_seconds);
}

void add_requests(const RequestMeter& meter, MetricsView& metrics) {
  MetricsView::Requests requests{.kind = meter.kind()};
  for (std::size_t code = 0; code < RequestMeter::kCodesMax; ++code) {
    if (const uint64_t answers = meter.answers(code); answers > 0)
      requests.answers.emplace_back(static_cast<int>(code), static_cast<int64_t>(answers));
  }
  requests.bounds.assign(RequestMeter::kBounds.begin(), RequestMeter::kBounds.end());
  for (std::size_t i = 0; i <= RequestMeter::kBounds.size(); ++i)
    requests.buckets.push_back(static_cast<int64_t>(meter.bucket(i)));
  requests.seconds = meter.seconds();
  metrics.requests.push_back(std::move(requests));
}

}  // namespace gpusched::api
