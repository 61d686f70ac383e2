#pragma once

#include <memory>

#include "api/doors/events/change_feed.h"

namespace gpusched::api {

/// The messages of GET /api/v1/ws, a JSON object each with a `type`: `begin`, `resync`, `job`, `left`,
/// `forgotten`, `node`, `overflow`, `mark`; jobs and nodes as in the jobs door's lists. See
/// docs/reference/rest.md.
std::unique_ptr<const ChangeFormat> jobs_change_format();

}  // namespace gpusched::api
