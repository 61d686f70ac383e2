#pragma once

#include <optional>
#include <span>

#include "api/contract/forecasts.h"
#include "api/contract/jobs.h"
#include "api/contract/nodes.h"
#include "api/contract/tenants.h"
#include "api/views/flow_views.h"
#include "api/views/rights.h"
#include "api/views/viewer.h"
#include "engine/messages/rejection.h"
#include "host/host.h"

/// Clients' views of the observer's state. On the observer's thread.
namespace gpusched::api {

/// A job to which the caller may do that. `tenant` empty: of any. kJobNotFound when there is no such job of
/// that tenant, or the caller may not know of it; kPermissionDenied when it may.
Answer<FoundJob> find_job(const State& state, const access::Caller& caller, access::Action action, JobId id,
                          const std::string& tenant);
/// By id or name, among those that the caller may know of. kTenantNotFound when there is none, or it is
/// deleted; kTenantAmbiguous, with their ids, when several have the name. Never null.
Answer<const Tenant*> find_tenant(const State& state, const access::Caller& caller, std::string_view tenant);
/// The same when the caller may do that; else kPermissionDenied.
Answer<const Tenant*> find_tenant(const State& state, const access::Caller& caller, access::Action action,
                                  std::string_view tenant);
/// Says that several tenants have the name, and which.
ApiError ambiguous_tenant(std::string_view name, std::span<const TenantId> ids);
/// "tenant-<digits>" or "default", without looking whether it exists.
std::optional<TenantId> parse_tenant_id(std::string_view text);

/// Where one member of an attempt runs or ran.
struct AttemptPlace {
  uint32_t attempt = 0;
  NodeId node;
  bool running = false;
};
/// `attempt` 0: the latest. kLogNotFound when there is none, or it is not known (any more) where it ran.
Answer<AttemptPlace> place_of(const State& state, const Job& job, uint32_t attempt, uint32_t member = 0);

/// All but the estimate of its wait.
JobView view_of(const Observer::View& view, const Job& job, const Viewer& viewer,
                const JobDetails& details = {});
ExplainView explain(const Observer::View& view, const Job& job, const Viewer& viewer);
TenantView view_of(const Tenant& tenant, Time now);
/// validating, ready, draining, drained or down.
std::string life_of(const Node& node);
NodeView view_of(const State& state, const Node& node, const NodeTelemetry& telemetry);
/// Names in `shown.message` the time when the job's node was last heard, if it does not report.
void add_silence(const State& state, JobView& shown, const Job& job, const TelemetryTable& telemetry);
/// Says in `shown.message` what the node of a scheduled job prepares for it, if it prepares something.
void add_preparation(JobView& shown, const Job& job, const TelemetryTable& telemetry);
ClusterView cluster_of(const State& state, const TelemetryTable& telemetry);
PoolsView pools_of(const State& state);
/// Whether the filter's words fit; its tenant, state and limits are the caller's.
bool matches(const State& state, const Job& job, const JobFilter& filter);

/// The engine's "no" as the client gets it.
ApiError to_api_error(const Rejection& rejection, std::size_t batch_size);

}  // namespace gpusched::api
