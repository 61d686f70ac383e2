#pragma once

#include <functional>
#include <string>

#include "api/contract/jobs.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// Answers with `to_json` of the job once it is final, or as it is after `wait`. Ends without an answer when
/// the client goes.
void wait_for_job(JobBackend& backend, HttpServer& server, const RestCallPtr& call, JobId job,
                  const std::string& tenant, Duration wait,
                  std::function<std::string(const JobView&)> to_json);

}  // namespace gpusched::api
