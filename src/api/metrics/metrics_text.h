#pragma once

#include <string>
#include <string_view>

#include "api/contract/health.h"

namespace gpusched::api {

/// The text that Prometheus scrapes (format 0.0.4). `name_space` begins every name: "gpu_scheduler".
std::string metrics_text(const MetricsView& metrics, std::string_view name_space);

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace gpusched::api
