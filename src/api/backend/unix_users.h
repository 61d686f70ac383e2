#pragma once

#include <optional>

#include "access/caller.h"
#include "api/contract/jobs.h"

/// As which Unix users callers' jobs run, as far as that is the scheduler's to say; whom a node admits is its
/// agent's.
namespace gpusched::api {

/// Refuses jobs as users that are not the caller's. A job that names none gets the caller's, if it has a
/// single one; and the jobs of whoever may not be root bear a mark for the agent, which keeps a node's
/// default user and other names of root from them.
std::optional<ApiError> assign_users(const access::Caller& caller, SubmitRequest& request);

/// Why the caller, who may enter the job, may not be whom the job runs as; nothing: it may.
std::optional<ApiError> refuse_user(const access::Caller& caller, const Job& job);

}  // namespace gpusched::api
