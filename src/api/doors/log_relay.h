#pragma once

#include "api/backend.h"
#include "api/doors/rest_query.h"
#include "api/rest_gate.h"

namespace gpusched::api {

/// Reads what of an output is wanted: `stream`, `attempt`, `offset`, `tail_lines`, `since` (a time, or how
/// long ago), `grep`, `follow`. What is wrong is the query's problem then.
struct LogQuery {
  LogRequest request;
  bool follow = false;
};
LogQuery read_log_query(JobId job, RestQuery& query);

/// Streams an attempt's output to the client, piece by piece, as fast as it reads. `follow`: waits for the
/// job to start, for more at the end, and for a node that is away for a while, until the attempt has ended.
void relay_log(Backend& backend, HttpServer& server, const RestCallPtr& call, LogRequest request,
               bool follow);

}  // namespace gpusched::api
