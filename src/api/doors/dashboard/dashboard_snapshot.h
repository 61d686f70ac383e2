#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/contract/backend.h"
#include "api/doors/native/native_rest_views.h"

/// The dashboard's first data: who the caller is, the cluster, nodes in a compact form, tenants, and the jobs
/// that are next in line.
namespace gpusched::api {

/// Jobs in line that the snapshot shows.
inline constexpr int64_t kSnapshotJobs = 50;
/// Fields of a job that the dashboard's lists show, as `fields` of GET /v1/jobs takes them.
inline constexpr std::string_view kListedFields =
    "job_id,tenant_id,spec.name,resources.gpu_count,resources.gpu_milli,resources.mig_profile,"
    "resources.gpu_memory_mb,resources.gpu_model,resources.cpu_milli,resources.memory_mb,resources.nodes,"
    "state,"
    "reason,message,priority,max_runtime_ms,submitted_at,started_at,completed_at,exit_code,signal,node_name,"
    "allocated_gpus,queue_position,held,owner";

const JobMask& listed_fields();

/// Facts that every snapshot has, whoever asks.
struct DashboardFacts {
  std::string version;
  bool has_sign_in = false;  ///< People sign in with a browser, at /login.
};

/// Collects all as JSON and gives it to `done`, on any thread. The cluster's `sequence` is taken first: a
/// watch that begins behind it misses nothing of the rest. A part that the caller may not see, or that cannot
/// be read now, is null, and `problems` says why.
void make_snapshot(Backend& backend, const CallerPtr& caller, const DashboardFacts& facts,
                   std::function<void(std::string json)> done);
/// For somebody whom the gate refused: nothing but why.
std::string refused_snapshot(const DashboardFacts& facts, const ApiError& error);

/// A page of the line: ListJobsResponse with `fields` of kListedFields, and in `starts_in_s` the seconds
/// until each job's start that the newest forecast holds as likely as not.
std::string line_json(const JobPage& page);

/// Devices of the nodes, as a JSON array of nodes. Words that repeat are numbers of a table: see `nodes` in
/// web/src/lib/snapshot.ts.
std::string compact_nodes_json(const std::vector<NodeView>& nodes);

}  // namespace gpusched::api
