#pragma once

#include <optional>

#include "access/caller.h"
#include "api/contract/jobs.h"
#include "api/contract/tenants.h"

/// How far callers without a credential may put themselves before others: limits of what they give, beside
/// their rights, which stand in the table of `access`. The limits of jobs hold for Unix users to whom nobody
/// gave a role, too. They mean nothing for all other callers.
namespace gpusched::api {

struct AnonymousLimits {
  int32_t priority_max = 100;          ///< Highest priority of their jobs.
  int32_t priority_tier_max = 1'000;   ///< Highest tier of tenants that they make or change.
  int64_t weight_milli_max = 1'000;    ///< Highest weight in fair shares of such tenants.
  bool networks_make_tenants = false;  ///< From other machines, too, they make, change and delete tenants.
  bool sets_quota = false;             ///< They divide the cluster into pools.
};

/// Limits of such a caller's requests; its mark is put on the jobs, and on the name of who asks.
std::optional<ApiError> limit_jobs(const access::Caller& caller, const AnonymousLimits& limits,
                                   SubmitRequest& request);
std::optional<ApiError> limit_update(const access::Caller& caller, const AnonymousLimits& limits,
                                     JobUpdate& update);
std::optional<ApiError> limit_tenant(const access::Caller& caller, const AnonymousLimits& limits,
                                     TenantRequest& request);
/// Why a caller from another machine may not make, change or delete tenants.
std::optional<ApiError> limit_networks(const access::Caller& caller, const AnonymousLimits& limits);
/// Nobody else's tenant is the default one.
std::optional<ApiError> keep_default(const access::Caller& caller, TenantId tenant, const char* what);

/// The requester's name as shown: a name that a caller without a credential gives itself is marked as such.
std::string shown_by(const access::Caller& caller, const std::string& by);

}  // namespace gpusched::api
