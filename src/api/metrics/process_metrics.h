#pragma once

#include "api/contract/health.h"
#include "api/http/request_meter.h"

namespace gpusched::api {

/// Adds what this process uses, under the names that Prometheus' client libraries give it
/// (process_cpu_seconds_total and so on, without the name space). Values that are not told are left out.
void add_process(MetricsView& metrics);

/// Adds what one door has answered, and how fast.
void add_requests(const RequestMeter& meter, MetricsView& metrics);

}  // namespace gpusched::api
