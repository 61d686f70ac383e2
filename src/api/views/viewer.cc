#include "api/views/viewer.h"

#include "api/contract/names.h"
#include "api/views/rights.h"

namespace gpusched::api {

Viewer Viewer::of(CallerPtr caller) {
  if (may_always(*caller, access::Action::kSeeJob)) return all();
  return Viewer(Sees::kCallers, {}, std::move(caller));
}

Viewer Viewer::of(CallerPtr caller, TenantId tenant) {
  const Viewer viewer = of(std::move(caller));
  return tenant.valid() ? Viewer(Sees::kTenant, tenant, viewer.caller_) : viewer;
}

bool Viewer::sees_tenant(const State& state, TenantId tenant) const {
  if (caller_ == nullptr) return true;
  const Tenant* const found = state.find_tenant(tenant);
  return found != nullptr &&
         decide(state, *caller_, access::Action::kSeeTenant, *found) == access::Verdict::kAllowed;
}

bool Viewer::counts(const State& state, TenantId tenant) const {
  return counts_all() || sees_jobs_of(state, *caller_, tenant);
}

bool Viewer::sees(const State& state, JobId job) const {
  if (sees_ == Sees::kAll) return true;
  const Job* found = state.jobs.find(job);
  if (found == nullptr) return false;
  if (sees_ == Sees::kTenant) return found->tenant == tenant_;
  return sees_jobs_of(state, *caller_, found->tenant);
}

std::string Viewer::name_of(const State& state, JobId job) const {
  return sees(state, job) ? job_name(job) : "a job of another tenant";
}

}  // namespace gpusched::api
