#include "api/views/viewer.h"

#include "api/contract/names.h"
#include "api/views/open_tenants.h"

namespace gpusched::api {

bool Viewer::sees(const State& state, JobId job) const {
  if (sees_ == Sees::kAll) return true;
  const Job* found = state.jobs.find(job);
  if (found == nullptr) return false;
  if (sees_ == Sees::kTenant) return found->tenant == tenant_;
  const Tenant* tenant = state.find_tenant(found->tenant);
  return tenant != nullptr && is_open(*tenant);
}

std::string Viewer::name_of(const State& state, JobId job) const {
  return sees(state, job) ? job_name(job) : "a job of another tenant";
}

}  // namespace gpusched::api
