#pragma once

#include <optional>
#include <span>
#include <string>

#include "api/contract/forecasts.h"
#include "api/contract/health.h"
#include "api/contract/jobs.h"
#include "api/contract/nodes.h"
#include "api/contract/tenants.h"

/// The jobs door's JSON of what the backend shows.
namespace gpusched::api {

/// The answer to POST /jobs.
/// `ignored`: the fields of the request that mean nothing here. `wait`: how long it will wait; nothing: not
/// known.
std::string submitted_json(const Submitted& submitted, std::span<const std::string> ignored,
                           std::optional<Duration> wait = {});
/// GET /jobs/{id}.
std::string job_json(const JobView& job);
/// One of GET /jobs.
std::string listed_job_json(const JobView& job);
/// GET /jobs.
std::string job_page_json(const JobPage& page);
std::string explain_json(const ExplainView& explain);
std::string plan_json(const PlanView& plan);
std::string tenant_json(const TenantView& tenant);
std::string tenants_json(const std::vector<TenantView>& tenants);
std::string node_json(const NodeView& node);
std::string nodes_json(const std::vector<NodeView>& nodes);
std::string cluster_json(const ClusterView& cluster);
/// The status word alone, for strangers.
std::string health_word_json(const HealthView& health);
/// `token_file` empty: it is not told.
std::string health_json(const HealthView& health, std::string_view version, Time now,
                        std::string_view token_file = {});

}  // namespace gpusched::api
