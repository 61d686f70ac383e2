#pragma once

#include <string>
#include <utility>

#include "api/contract/caller.h"
#include "model/state.h"

namespace gpusched::api {

/// The receiver of an answer. Facts that it may not see are taken out before a sentence is made of them, so
/// every function that makes one takes a viewer.
class Viewer {
 public:
  /// One who may see all jobs.
  static Viewer all() { return Viewer(Sees::kAll, {}); }
  /// One who may see all jobs, asked for a tenant's, and is told of no others.
  static Viewer of(TenantId tenant) { return Viewer(Sees::kTenant, tenant); }
  /// All that the caller may see.
  static Viewer of(CallerPtr caller);
  /// A caller who lists jobs: of a tenant, or, when that is invalid, of all that it may see.
  static Viewer of(CallerPtr caller, TenantId tenant);
  /// A caller who named `tenant` and found a job of `its` in it. One that named none is told of all jobs when
  /// it may see all, and else of that tenant's.
  static Viewer of(CallerPtr caller, const std::string& tenant, TenantId its) {
    const Viewer viewer = of(caller);
    return tenant.empty() && viewer.sees_all() ? viewer : of(std::move(caller), its);
  }

  bool sees_all() const { return sees_ == Sees::kAll; }
  /// Whether numbers of jobs may count those of every tenant.
  bool counts_all() const { return caller_ == nullptr; }
  /// Whether they may count the tenant's.
  bool counts(const State& state, TenantId tenant) const;
  /// A job that is no longer kept is nobody's.
  bool sees(const State& state, JobId job) const;
  /// Whether the tenant's name, limits and use may be told: of one above the own, say.
  bool sees_tenant(const State& state, TenantId tenant) const;
  /// "job-12", or "a job of another tenant".
  std::string name_of(const State& state, JobId job) const;

 private:
  enum class Sees : uint8_t { kAll, kTenant, kCallers };
  Viewer(Sees sees, TenantId tenant, CallerPtr caller = nullptr)
      : sees_(sees), tenant_(tenant), caller_(std::move(caller)) {}

  Sees sees_;
  TenantId tenant_;
  CallerPtr caller_;  ///< Null: may see all tenants.
};

}  // namespace gpusched::api
