#pragma once

#include <string>

#include "model/state.h"

namespace gpusched::api {

/// Who an answer is for. What somebody may not see is taken out of the facts before a sentence is made of
/// them, so every function that makes one takes a viewer.
class Viewer {
 public:
  /// An operator, or a caller that is bound to no tenant.
  static Viewer all() { return Viewer(Sees::kAll, {}); }
  /// One who asked for a tenant's jobs, and knows no others.
  static Viewer of(TenantId tenant) { return Viewer(Sees::kTenant, tenant); }
  /// One who named `tenant` and found the job in it; empty: the job of any tenant.
  static Viewer of(const std::string& tenant, const Job& job) {
    return tenant.empty() ? all() : of(job.tenant);
  }
  /// One who lists jobs: of a tenant, or, when that is invalid, of all that such a caller sees.
  static Viewer of(bool is_anonymous, TenantId tenant) {
    return tenant.valid() ? of(tenant) : is_anonymous ? anonymous() : all();
  }
  /// A caller without a credential: the tenants that are open to such.
  static Viewer anonymous() { return Viewer(Sees::kOpen, {}); }

  bool sees_all() const { return sees_ == Sees::kAll; }
  /// A job that is no longer kept is nobody's.
  bool sees(const State& state, JobId job) const;
  /// "job-12", or "a job of another tenant".
  std::string name_of(const State& state, JobId job) const;

 private:
  enum class Sees : uint8_t { kAll, kTenant, kOpen };
  Viewer(Sees sees, TenantId tenant) : sees_(sees), tenant_(tenant) {}

  Sees sees_;
  TenantId tenant_;
};

}  // namespace gpusched::api
