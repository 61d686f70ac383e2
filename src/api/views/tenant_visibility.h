#pragma once

#include <cstddef>
#include <map>

#include "api/contract/nodes.h"
#include "api/contract/reservations.h"
#include "api/contract/tenants.h"
#include "api/views/rights.h"
#include "engine/messages/rejection.h"
#include "host/nodes/telemetry.h"

/// Hides other tenants' facts from callers who do not see all tenants. Nodes and the cluster are no secret;
/// whose jobs they run, and for whom they are kept, is.
namespace gpusched::api {

/// The caller's sight of one state, found once for each tenant. For the time of one look at the state.
class TenantVisibility {
 public:
  TenantVisibility(const State& state, const access::Caller& caller)
      : state_(state), caller_(caller), sees_all_(may_always(caller, access::Action::kSeeJob)) {}

  /// A job that is no longer kept is seen by those alone who see all.
  bool sees(JobId job);
  bool sees_jobs_of(TenantId tenant);

  /// Hides whose jobs have its devices, and what the driver said of their processes.
  void conceal(NodeView& node);
  /// Hides for whom it is, unless the caller's jobs may use it; of a tenant above its own it learns no more
  /// than that.
  void conceal(const Booking& booking, ReservationView& shown);

 private:
  bool may_use(const Booking& booking) const;

  const State& state_;
  const access::Caller& caller_;
  const bool sees_all_;
  std::map<TenantId, bool> seen_;
};

/// A tenant that the caller may see: without the one above it when it may not see that.
TenantView view_for(const access::Caller& caller, const State& state, const Tenant& tenant);
/// The cluster, whose jobs are counted in the tenants that the caller may see unless it may see metrics.
ClusterView cluster_for(const access::Caller& caller, const State& state, const TelemetryTable& telemetry);

/// Whether the caller may know the job's name, labels and user.
bool may_describe(const State& state, const access::Caller& caller, const Job& job);

/// The engine's "no" as this caller gets it. Any thread.
ApiError to_api_error(const access::Caller& caller, const TenantPositions& positions,
                      const Rejection& rejection, std::size_t batch_size);

}  // namespace gpusched::api
