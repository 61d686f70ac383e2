#include "api/calls/trace_jobs.h"

#include "api/contract/spec_peek.h"
#include "base/job_labels.h"
#include "base/text/trace_variable.h"

namespace gpusched::api {

void trace_jobs(SubmitRequest& request, std::string_view traceparent) {
  if (traceparent.empty()) return;
  for (JobRequest& job : request.jobs) {
    if (!spec_label(job.spec, kServiceLabel)) add_trace(job.spec, traceparent);
  }
}

}  // namespace gpusched::api
