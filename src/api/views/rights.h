#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "access/access.h"
#include "api/contract/errors.h"
#include "api/contract/jobs.h"
#include "base/limits.h"
#include "engine/messages/events.h"
#include "host/readers/observer.h"
#include "model/identity/proposer.h"

/// Rights of callers to what is in the state: facts for `access::decide_access`, and the answers to those
/// whom it refuses. All facts stay as they are while what they are about exists, but that a tenant is open.
namespace gpusched::api {

/// The requester of a command as the journal keeps it.
Proposer proposer_of(const access::Caller& caller);

/// Whether callers without a credential may use the tenant; of a deleted one it says whose its jobs were.
inline bool is_open(const Tenant& tenant) { return tenant.id == kDefaultTenant || tenant.anonymous; }

/// Where a tenant stands among tenants.
struct TenantPosition {
  std::array<TenantId, limits::kTenantDepthMax> path = {};  ///< Itself, its parent, and so on.
  std::size_t depth = 0;
  bool is_open = false;

  /// A view of this.
  access::Resource resource(access::Owner owner = {}) const {
    return {.tenant_path = {path.data(), depth}, .owner = owner, .is_open = is_open};
  }
};
TenantPosition position_of(const State& state, const Tenant& tenant);

/// The positions of all tenants, for threads that have no state at hand. Thread-safe.
class TenantPositions {
 public:
  /// All of a state.
  void fill(const State& state);
  /// Takes in a batch of changes.
  void observe(const State& state, const Changes& changes);

  std::optional<TenantPosition> find(TenantId tenant) const;

 private:
  void look_at(const State& state, TenantId tenant);

  mutable std::mutex mutex_;
  std::map<TenantId, TenantPosition> positions_ = {
      {kDefaultTenant, {.path = {kDefaultTenant}, .depth = 1, .is_open = true}}};
};

/// Whether the caller may do that to whatever there is of the kind, so that nothing needs to be looked up.
bool may_always(const access::Caller& caller, access::Action action);

access::Verdict decide(const State& state, const access::Caller& caller, access::Action action,
                       const Job& job);
access::Verdict decide(const State& state, const access::Caller& caller, access::Action action,
                       const Tenant& tenant);
/// Whether the caller may know that the tenant's jobs exist.
bool sees_jobs_of(const State& state, const access::Caller& caller, TenantId tenant);

/// The owner of the job: kind and name, as "person ana"; "anonymous"; empty: nobody is known to.
std::string owner_text(const State& state, const Job& job);
std::string owner_text(access::CallerKind kind, std::string_view name);

/// Takes out of the view what the caller may not know of the job.
void conceal(const State& state, const access::Caller& caller, const Job& job, JobView& view);

/// Words that callers without a credential are told beside what is refused.
inline constexpr std::string_view kHowToHaveOne =
    "; send the shared token, the content of the scheduler's DATA_DIR/token (gpu-cli run as root or as the "
    "scheduler's user finds it by itself; otherwise give a copy with --token-file)";

/// Says that the caller may not do that: "callers without a credential may not `what`".
ApiError not_allowed(const access::Caller& caller, access::Action action, std::string_view what);
/// The same of a job, which the caller may know of.
ApiError not_allowed(const State& state, const access::Caller& caller, access::Action action, const Job& job);
/// Says that there is no such tenant among those that the caller may know of.
ApiError no_such_tenant(const access::Caller& caller, std::string_view tenant);
/// For what is done to nodes and to the cluster, nothing when the caller may.
std::optional<ApiError> refuse(const access::Caller& caller, access::Action action, std::string_view what);

}  // namespace gpusched::api
