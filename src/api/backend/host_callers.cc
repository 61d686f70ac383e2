#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"

/// What depends on who calls, and on whom jobs run as.
namespace gpusched::api {

/// A job that names no user waits in vain where no node has one for it: said now, and not after every try.
std::optional<ApiError> HostBackend::check_users(const SubmitRequest& request) const {
  if (nameless_->possible(false) && nameless_->possible(true)) return std::nullopt;
  for (const JobRequest& job : request.jobs) {
    if (!peek_spec(job.spec).user.empty()) continue;
    const bool anonymous = spec_is_anonymous(job.spec);
    if (nameless_->possible(anonymous)) continue;
    const std::string why =
        nameless_->possible(false)
            ? "the job names no user, and all nodes run such jobs as root, which is never allowed for "
              "callers without a credential"
            : "the job names no user, and no node has a default user: the agents run as root";
    const std::string mend =
        anonymous ? "; start an agent with --default-user NAME, or submit the job with the token"
                  : "; give a user (gpu-cli: --user NAME), or start an agent with --default-user NAME";
    return ApiError{ErrorKind::kUnprocessable, why + mend, "user"};
  }
  return std::nullopt;
}

Answer<FoundJob> HostBackend::find_reachable(const State& state, JobId job, const std::string& tenant,
                                             bool anonymous) const {
  Answer<FoundJob> found = find_job(state, job, tenant);
  if (!found || !anonymous) return found;
  if (!open_tenants_->contains((*found)->tenant))
    return ApiError{ErrorKind::kJobNotFound, "no such job: " + job_name(job)};
  if (spec_is_anonymous((*found)->spec.view())) return found;
  return ApiError{ErrorKind::kPermissionDenied,
                  job_name(job) +
                      " was submitted with a credential and is visible only to callers with one; send the "
                      "shared token, the content of the scheduler's DATA_DIR/token"};
}

}  // namespace gpusched::api
