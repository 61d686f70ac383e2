#pragma once

#include <functional>
#include <string>

#include "api/contract/backend.h"
#include "api/doors/allocation/allocation_json.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// Filter of listed records; empty: whatever status or health they have.
struct LeaseListRequest {
  std::string status, health;
  int64_t skip = 0;
  int64_t limit = 100;
};

/// Answers with a bare array of the leases that the caller may see, the newest first. `scene_of` says what
/// each is shown by.
void list_leases(Backend& backend, const RestCallPtr& call, LeaseListRequest request, DeviceTable devices,
                 std::function<LeaseScene(JobId, const DeviceTable&)> scene_of);

}  // namespace gpusched::api
