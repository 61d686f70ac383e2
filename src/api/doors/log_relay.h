#pragma once

#include "api/backend.h"
#include "api/rest_gate.h"

namespace gpusched::api {

/// Streams an attempt's output to the client, piece by piece, as fast as it reads. `follow`: waits for the
/// job to start, for more at the end, and for a node that is away for a while, until the attempt has ended.
void relay_log(Backend& backend, HttpServer& server, const RestCallPtr& call, LogRequest request,
               bool follow);

}  // namespace gpusched::api
