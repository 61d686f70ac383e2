#pragma once

#include <string>

#include "api/backend.h"
#include "api/rest_gate.h"

namespace gpusched::api {

/// Answers with the job once it is final, or as it is after `wait`. Ends without an answer when the client
/// goes.
void wait_for_job(Backend& backend, HttpServer& server, const RestCallPtr& call, JobId job,
                  const std::string& tenant, Duration wait);

}  // namespace gpusched::api
