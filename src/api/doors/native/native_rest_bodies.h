#pragma once

#include <string>
#include <string_view>

#include "api/contract/jobs.h"
#include "api/contract/nodes.h"
#include "api/contract/reservations.h"
#include "api/contract/tenants.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/native/native_views.h"

/// Reads the bodies of the native API's REST calls. Pure functions over untrusted bytes: tests and a fuzzer
/// call them as they are.
namespace gpusched::api {

/// A SubmitJobsRequest, or one JobRequest itself with `tenant_id` and `request_key` beside its fields. The
/// key of the header and that of the body must be the same when both are given.
Answer<SubmitRequest> read_native_submit(std::string_view body, const std::string& header_key,
                                         bool containers_possible);

/// The checks of a job name a field as it stands in its own message; from here on as in the request's.
void place_job_field(ApiError& error);

/// The problem of a name in the body that also stands in the path: it must be the same, or empty.
std::optional<ApiError> check_same(std::string_view field, std::string_view in_body,
                                   std::string_view in_path);

/// {"job_ids":[...]}
std::string native_submitted_json(const Submitted& submitted);

enum class TenantUse { kCreate, kUpdate };
/// A Tenant. kUpdate: only what is given changes, and a limit that is null is lifted. Fields that a tenant
/// only shows are ignored.
Answer<TenantRequest> read_native_tenant(std::string_view body, const std::string& header_key, TenantUse use);

/// An EditClusterRequest, whose tenants are read as those of an update.
Answer<EditsRequest> read_native_edits(std::string_view body);

/// An UpdateJobRequest for the job of the path; its job_id, when it is given, must be that one.
Answer<JobUpdate> read_native_update(std::string_view body, std::string_view job);

/// A Reservation to be made.
Answer<ReservationRequest> read_native_reservation(std::string_view body);

/// A DrainNodeRequest for the node of the path, or an empty body. `by` falls back to `caller`.
struct DrainWords {
  std::string by, reason;
};
Answer<DrainWords> read_native_drain(std::string_view body, std::string_view node, std::string_view caller);

/// A LabelNodeRequest for the node of the path.
Answer<LabelChange> read_native_labels(std::string_view body, std::string_view node);

/// A SetDeviceConditionRequest. `caller`: who it is when the body does not say.
Answer<ConditionRequest> read_native_condition(std::string_view body, std::string_view caller);

}  // namespace gpusched::api
