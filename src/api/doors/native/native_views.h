#pragma once

#include <span>
#include <string>

#include "api/contract/forecasts.h"
#include "api/contract/jobs.h"
#include "api/contract/nodes.h"
#include "api/contract/reservations.h"
#include "api/contract/tenants.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/fields/job_message.h"
#include "api/fields/node_rows.h"
#include "api/fields/reservation_rows.h"
#include "api/fields/tenants/tenant_rows.h"
#include "gpusched/v1/scheduler.pb.h"

/// The native API's messages from and to what the backend speaks.
namespace gpusched::api {

Answer<SubmitRequest> read_submit(const v1::SubmitJobsRequest& message, bool containers_possible);
/// `also_given`: names of fields that a body has, though they are zero, false or empty.
Answer<TenantRequest> read_tenant(const v1::Tenant& message, bool creating,
                                  std::span<const std::string> also_given = {});

/// The changes of a job; an error when there are none.
Answer<JobUpdate> read_update(const v1::UpdateJobRequest& message);
/// The lengths of what is said about a node.
std::optional<ApiError> check_pause(const v1::PauseStartsRequest& message);
std::optional<ApiError> check_drain(const v1::DrainNodeRequest& message);
struct LabelChange {
  std::vector<Label> set;
  std::vector<std::string> remove;
};
Answer<LabelChange> read_labels(const v1::LabelNodeRequest& message);

void write_job(const JobView& job, v1::Job& out);
void write_explanation(const ExplainView& explain, v1::Explanation& out);
void write_quality(const QualityView& quality, v1::Quality& out);
void write_plan(const PlanView& plan, v1::PlanResponse& out);
/// At most `size` tenants behind the one with the number `after`, which is what a page's token says.
void write_tenant_page(const std::vector<TenantView>& tenants, int64_t after, int size,
                       v1::ListTenantsResponse& out);
void write_history(const HistoryView& history, v1::JobHistory& out);
void write_cluster(const ClusterView& cluster, v1::Cluster& out);

void write_time(Time time, google::protobuf::Timestamp& out);

}  // namespace gpusched::api
