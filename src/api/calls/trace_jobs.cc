#include "api/calls/trace_jobs.h"

#include "api/contract/spec_peek.h"
#include "base/job_labels.h"
#include "base/text/trace_variable.h"

namespace gpusched::api {

void trace_jobs(SubmitRequest& request, std::string_view traceparent, const CallNote& note) {
  const std::string& id = note.line.client_request_id;
  if (traceparent.empty() && id.empty()) return;
  for (JobRequest& job : request.jobs) {
    if (spec_label(job.spec, kServiceLabel)) continue;
    add_request_id(job.spec, id);
    add_trace(job.spec, traceparent);
  }
}

}  // namespace gpusched::api
