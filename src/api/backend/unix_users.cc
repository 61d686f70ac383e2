#include "api/backend/unix_users.h"

#include "access/access.h"
#include "api/contract/names.h"
#include "api/contract/spec_peek.h"

namespace gpusched::api {
namespace {

using access::Caller;

constexpr std::string_view kRootUser = "root";

std::string who_is(const Caller& caller) {
  return std::string(to_string(caller.kind)) + (caller.name.empty() ? "" : " " + caller.name);
}

/// "ana, batch", "all but root" or "none".
std::string users_of(const Caller& caller) {
  std::string names;
  for (const std::string& user : caller.unix_users)
    names += (names.empty() ? "" : ", ") + (user == "*" ? std::string("all but root") : user);
  return names.empty() ? "none" : names;
}

}  // namespace

std::optional<ApiError> assign_users(const Caller& caller, SubmitRequest& request) {
  const bool has_one = caller.unix_users.size() == 1 && caller.unix_users.front() != "*";
  for (JobRequest& job : request.jobs) {
    const std::string user(peek_spec(job.spec).user);
    if (!access::may_run_as(caller, user)) {
      return ApiError{ErrorKind::kPermissionDenied,
                      who_is(caller) + " may not run jobs as the Unix user " + user.substr(0, 64) +
                          "; its Unix users: " + users_of(caller),
                      "user"};
    }
    if (user.empty() && has_one) set_user(job.spec, caller.unix_users.front());
    if (!access::may_run_as(caller, kRootUser) && !is_never_root(job.spec)) mark_never_root(job.spec);
  }
  return std::nullopt;
}

std::optional<ApiError> refuse_user(const Caller& caller, const Job& job) {
  const std::string user(peek_spec(job.spec.view()).user);
  const bool is_safe = !user.empty() || is_never_root(job.spec.view());
  if (access::may_run_as(caller, is_safe ? std::string_view(user) : kRootUser)) return std::nullopt;
  return ApiError{ErrorKind::kPermissionDenied, who_is(caller) + " may not be the Unix user of " +
                                                    job_name(job.id) + ", " +
                                                    (is_safe ? user : "which may be root: it names none") +
                                                    "; its Unix users: " + users_of(caller)};
}

}  // namespace gpusched::api
