#pragma once

#include "api/contract/backend.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// Submissions as lines: each line of the body is one SubmitJobsRequest or one job, each line of the answer
/// what became of it, in their order, once it is durable. A refused line is answered with its error and ends
/// nothing. Both ways wait for the slower side: at most 1,024 lines are under way, and what the client does
/// not read is not asked for.
/// `by` is who asks, for people; `traceparent` that of the request, for all of its jobs.
void submit_lines(Backend& backend, HttpServer& server, const RestCallPtr& call, std::string by,
                  std::string traceparent);

}  // namespace gpusched::api
