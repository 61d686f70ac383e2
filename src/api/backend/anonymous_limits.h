#pragma once

#include <optional>

#include "access/caller.h"
#include "api/contract/jobs.h"
#include "api/contract/tenants.h"

/// How far callers without a credential may put themselves before others: limits of what they give, beside
/// their rights, which stand in the table of `access`. What is said of jobs holds for Unix users to whom
/// nobody gave a role, too. For all other callers these say nothing.
namespace gpusched::api {

struct AnonymousLimits {
  int32_t priority_max = 100;         ///< Of their jobs.
  int32_t priority_tier_max = 1'000;  ///< Of tenants that they make or change,
  int64_t weight_milli_max = 1'000;   ///< and their weight in fair shares.
};

/// What such a caller may ask for, and the mark of one on the jobs, and on who asks.
std::optional<ApiError> limit_jobs(const access::Caller& caller, const AnonymousLimits& limits,
                                   SubmitRequest& request);
std::optional<ApiError> limit_update(const access::Caller& caller, const AnonymousLimits& limits,
                                     JobUpdate& update);
std::optional<ApiError> limit_tenant(const access::Caller& caller, const AnonymousLimits& limits,
                                     TenantRequest& request);
/// Nobody else's tenant is the default one.
std::optional<ApiError> keep_default(const access::Caller& caller, TenantId tenant, const char* what);

/// Who is shown to have asked: a name that a caller without a credential gives itself is shown as such.
std::string shown_by(const access::Caller& caller, const std::string& by);

}  // namespace gpusched::api
