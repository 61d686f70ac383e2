#pragma once

#include <string>

#include "api/contract/backend.h"
#include "api/doors/events/change_feed.h"
#include "api/doors/native/native_rest_views.h"
#include "api/http/rest_gate.h"

/// Server-Sent Events. A client that reads slowly gets the newest state of each job, not each state between:
/// what waits for it is bounded. A comment comes every 15 s, so that both ends notice when the other is gone.
namespace gpusched::api {

/// Events named "job": the job now and after each change, until it is final. An error before the first is an
/// ordinary answer.
void watch_one_job(Backend& backend, HttpServer& server, const RestCallPtr& call, JobId job,
                   const std::string& tenant, const JobMask& mask);

/// First an event "begin" with {"sequence":N}: every change after it is told. Then events named "job" with
/// each job that changed and matches, and "node" if wanted. "overflow": too much changed at once for this
/// client; "resync": it cannot be resumed where it was asked for; in both cases it has to list again.
void watch_changes(Backend& backend, HttpServer& server, const RestCallPtr& call, ChangesWanted wanted,
                   const JobMask& mask);

}  // namespace gpusched::api
