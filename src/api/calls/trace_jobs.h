#pragma once

#include <string_view>

#include "api/calls/call_note.h"
#include "api/contract/jobs.h"

namespace gpusched::api {

/// Gives the jobs of a submission its `traceparent`, and what its client calls the call of the note, see
/// base/text/trace_variable.h. A service has neither: what it runs goes on long after the call that made it.
void trace_jobs(SubmitRequest& request, std::string_view traceparent, const CallNote& note);

}  // namespace gpusched::api
