#pragma once

#include <string_view>

#include "api/contract/jobs.h"

namespace gpusched::api {

/// Gives the jobs of a submission its `traceparent`, see base/text/trace_variable.h. A service has none: what
/// it runs goes on long after the call that made it.
void trace_jobs(SubmitRequest& request, std::string_view traceparent);

}  // namespace gpusched::api
