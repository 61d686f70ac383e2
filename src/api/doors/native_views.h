#pragma once

#include "api/backend.h"
#include "api/doors/jobs_json.h"
#include "gpusched/v1/scheduler.pb.h"

/// The native API's messages from and to what the backend speaks.
namespace gpusched::api {

/// Fills in whatever a job says about itself; checks everything.
Answer<JobRequest> read_job(const v1::JobRequest& message, bool containers_possible);
Answer<SubmitRequest> read_submit(const v1::SubmitJobsRequest& message, bool containers_possible);
Answer<TenantRequest> read_tenant(const v1::Tenant& message, bool creating);

void write_job(const JobView& job, v1::Job& out);
void write_tenant(const TenantView& tenant, v1::Tenant& out);
void write_node(const NodeView& node, v1::Node& out);
void write_cluster(const ClusterView& cluster, v1::Cluster& out);

void write_time(Time time, google::protobuf::Timestamp& out);

}  // namespace gpusched::api
