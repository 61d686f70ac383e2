#include "api/backend/anonymous_limits.h"

#include "access/access.h"
#include "api/contract/spec_peek.h"
#include "api/limits/network_callers.h"
#include "api/views/rights.h"

namespace gpusched::api {
namespace {

using access::Action;
using access::Caller;

bool has_none(const Caller& caller) { return caller.kind == access::CallerKind::kAnonymous; }

/// Whether nobody gave it the role that it has.
bool is_ungranted(const Caller& caller) { return has_none(caller) || caller.uses_open_tenants; }

std::string who(const Caller& caller) {
  return has_none(caller) ? "callers without a credential" : "Unix users without a role";
}

/// Settings that raise the limits of tiers and priorities.
constexpr const char* kTierKeys =
    ", or have api.anonymous_priority_tier raised (or priority_critical added to api.anonymous_may) and the "
    "scheduler restarted";

ApiError beyond(const Caller& caller, std::string field, const std::string& what, const std::string& most,
                const char* lifted_by) {
  return {ErrorKind::kPermissionDenied,
          who(caller) + " cannot give " + what + " above " + most +
              "; remove or lower it, or send the shared token" + lifted_by,
          std::move(field)};
}

std::optional<ApiError> check_priority(const Caller& caller, std::optional<int32_t> priority,
                                       const AnonymousLimits& limits) {
  if (priority.value_or(0) <= limits.priority_max) return std::nullopt;
  return beyond(caller, "priority", "a job a priority", std::to_string(limits.priority_max), kTierKeys);
}

/// Users of a tenant may use its credentials; who uses it because it is open may not.
ApiError no_registry_credential(const Caller& caller) {
  ApiError error = not_allowed(caller, Action::kSubmitJob, "use a tenant's registry credential");
  if (!has_none(caller)) {
    error.message = who(caller) +
                    " may not use a tenant's registry credential; remove registry_credential, or send an API "
                    "key with a role in that tenant";
  }
  error.field = "registry_credential";
  return error;
}

bool has_guarantee(const TenantSettings& given) {
  return given.guaranteed_gpus || given.guaranteed_gpu_memory_mb || given.guaranteed_cpu_milli ||
         given.guaranteed_memory_mb || given.guaranteed_jobs;
}

}  // namespace

std::optional<ApiError> limit_jobs(const Caller& caller, const AnonymousLimits& limits,
                                   SubmitRequest& request) {
  if (!is_ungranted(caller)) return std::nullopt;
  for (JobRequest& job : request.jobs) {
    if (auto refused = check_priority(caller, job.priority, limits)) return refused;
    if (has_none(caller) && !access::may_run_as(caller, peek_spec(job.spec).user)) {
      return ApiError{
          ErrorKind::kPermissionDenied,
          "callers without a credential cannot set the user of a job; remove user, and the job runs as "
          "its node's default user" +
              std::string(kHowToHaveOne),
          "user"};
    }
    if (spec_names_credential(job.spec)) return no_registry_credential(caller);
  }
  request.by = shown_by(caller, request.by);
  return std::nullopt;
}

std::optional<ApiError> limit_update(const Caller& caller, const AnonymousLimits& limits, JobUpdate& update) {
  if (!is_ungranted(caller)) return std::nullopt;
  if (auto refused = check_priority(caller, update.priority, limits)) return refused;
  update.by = shown_by(caller, update.by);
  return std::nullopt;
}

std::optional<ApiError> limit_tenant(const Caller& caller, const AnonymousLimits& limits,
                                     TenantRequest& request) {
  if (!has_none(caller)) return std::nullopt;
  if (auto refused = limit_networks(caller, limits)) return refused;
  if (request.priority_tier.value_or(0) > limits.priority_tier_max)
    return beyond(caller, "priority_tier", "a tenant a priority tier",
                  std::to_string(limits.priority_tier_max), kTierKeys);
  if (request.weight_milli.value_or(0) > limits.weight_milli_max)
    return beyond(caller, "fair_share_weight", "a tenant a weight",
                  std::to_string(limits.weight_milli_max / 1'000), "");
  if (has_guarantee(request))
    return not_allowed(caller, Action::kUpdateTenant, "guarantee a tenant anything");
  if (request.anonymous == false)
    return not_allowed(caller, Action::kUpdateTenant, "close a tenant to callers without a credential");
  request.by = shown_by(caller, request.by);
  return std::nullopt;
}

std::optional<ApiError> limit_networks(const Caller& caller, const AnonymousLimits& limits) {
  if (limits.networks_make_tenants || !is_network_caller(caller)) return std::nullopt;
  ApiError error = not_allowed(caller, Action::kCreateTenant, "make or change tenants from another machine");
  error.message += ", or have create_tenant added to api.anonymous_may and the scheduler restarted";
  return error;
}

std::optional<ApiError> keep_default(const Caller& caller, TenantId tenant, const char* what) {
  if (!has_none(caller) || tenant != kDefaultTenant) return std::nullopt;
  return not_allowed(caller, Action::kUpdateTenant, what);
}

std::string shown_by(const Caller& caller, const std::string& by) {
  if (!has_none(caller)) return by;
  return by.empty() ? "anonymous" : "anonymous: " + by;
}

}  // namespace gpusched::api
