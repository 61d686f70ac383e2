#include <algorithm>

#include "api/contract/sessions.h"
#include "api/doors/native/native_rest.h"
#include "api/fields/field_shapes.h"
#include "base/limits.h"
#include "gpusched/v1/edits.pb.h"
#include "gpusched/v1/history.pb.h"
#include "gpusched/v1/login.pb.h"
#include "gpusched/v1/machines.pb.h"
#include "gpusched/v1/scheduler.pb.h"
#include "gpusched/v1/services.pb.h"

namespace gpusched::api {
namespace {

using Type = NativeParameter::Type;
using enum HttpMethod;
using enum access::Action;
using Kind = NativeRoute::Answer;

constexpr NativeParameter kTenant{Type::kText, "tenant_id",
                                  "Only if the job belongs to this tenant: an id or a name."};
// As parse_duration and parse_since take them; nothing is as good as leaving it out.
constexpr std::string_view kInstantOrSpan =
    "^([0-9]{1,9}(ms|s|m|h|d)?|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-"
    "9]:"
    "[0-5][0-9](\\.[0-9]{1,9})?Z)?$";
constexpr std::string_view kStates = "^(pending|scheduled|running|completed|failed|cancelled|preempted)?$";

constexpr NativeParameter kServiceTenant{Type::kText, "tenant_id",
                                         "Only a service of this tenant: an id or a name."};
constexpr NativeParameter kFields{
    Type::kText, "fields",
    "The fields to return, comma-separated, such as job_id,state,spec.name; all if omitted."};
constexpr NativeParameter kWait{
    Type::kText, "wait", "Wait until the job is final, but at most this long, such as 30s; at most 10m.",
    kWaitSpan};
constexpr NativeParameter kTenantPage{Type::kCount, "page_size",
                                      "Maximum number of tenants on a page: 50 if omitted, at most 1000."};
constexpr NativeParameter kJobToken{Type::kText, "page_token", "The next_page_token of the page before.",
                                    "^(job-[1-9][0-9]{0,17})?$"};
constexpr NativeParameter kKeyPage{Type::kCount, "page_size",
                                   "Maximum number of keys on a page: 50 if omitted, at most 1000."};
constexpr NativeParameter kKeyToken{Type::kText, "page_token", "The next_page_token of the page before.",
                                    "^(key-[1-9][0-9]{0,17})?$"};
constexpr NativeParameter kTenantToken{Type::kText, "page_token", "The next_page_token of the page before.",
                                       "^[0-9]{0,18}$"};

std::vector<NativeParameter> list_parameters() {
  return {{Type::kText, "tenant_id", "Only jobs of this tenant: an id or a name."},
          {Type::kText, "state",
           "Only jobs in this state: pending, scheduled, running, completed, failed, cancelled or preempted.",
           kStates},
          {Type::kText, "name", "Only jobs with this name; * matches any text, ? any byte."},
          {Type::kText, "user", "Only jobs that this user submitted, or that run as this user."},
          {Type::kTexts,
           "label",
           "Only jobs with this label: key=value, or key for any value; if repeated, all must match.",
           {},
           limits::kLabelTermsMax},
          {Type::kText, "since", "Only jobs submitted since this time, or within this duration, such as 2h.",
           kInstantOrSpan},
          {Type::kCount, "page_size", "Maximum number of jobs on a page: 50 if omitted, at most 10000."},
          kJobToken,
          kFields};
}

std::vector<NativeParameter> watch_parameters() {
  std::vector<NativeParameter> out = list_parameters();
  std::erase_if(out,
                [](const NativeParameter& p) { return p.name == "page_size" || p.name == "page_token"; });
  out.push_back({Type::kFlag, "nodes", "Also sends changes of nodes, as events named node."});
  out.push_back({Type::kCount,
                 "after_sequence",
                 "Resumes a watch: sends what changed after this number, the id of an event.",
                 {},
                 INT64_MAX});
  return out;
}

std::vector<NativeParameter> log_parameters() {
  return {
      kTenant,
      {Type::kText, "stream", "stdout (the default) or stderr.", "^(stdout|stderr)?$"},
      {Type::kCount, "attempt", "The attempt's number; the latest if omitted.", {}, UINT32_MAX},
      {Type::kCount,
       "member",
       "For a job with several members: the member whose output to read, counted from 0.",
       {},
       limits::kMembersMax},
      {Type::kCount, "offset", "Offset to begin at, in bytes.", {}, int64_t{1} << 62},
      {Type::kCount, "tail_lines", "Begin this many lines before the end.", {}, kTailLinesMax},
      {Type::kText, "since",
       "Begin with what was written since this time, or within this duration, such as 10m.", kInstantOrSpan},
      {Type::kText, "grep", "Only lines that contain this text, filtered on the node; at most 1024 bytes.",
       "^[^\\n]{0,256}$"},
      {Type::kFlag, "timestamps", "Prefix each line with the latest time at which it can have been written."},
      {Type::kFlag, "follow",
       "Stream the output: wait for the start and for new output, and end with the attempt."},
      {Type::kText, "format", "bytes (the default), or json: one object per line, with offsets.",
       "^(bytes|json)?$"}};
}

using Handle = void (NativeRest::*)(NativeCall&);
using Descriptor = google::protobuf::Descriptor;

/// Adds to one route what is said about it.
class Line {
 public:
  explicit Line(NativeRoute& route) : route_(route) {}
  Line& query(std::vector<NativeParameter> parameters) {
    route_.query = std::move(parameters);
    return *this;
  }
  Line& body(const Descriptor* message, const Descriptor* or_else = nullptr) {
    route_.request = message;
    route_.alternative = or_else;
    return *this;
  }
  Line& answers(const Descriptor* message, int status = 200) {
    route_.response = message;
    route_.status = status;
    return *this;
  }
  Line& as(Kind kind) {
    route_.answer = kind;
    return *this;
  }
  /// The body needs these fields.
  Line& needs(std::vector<std::string_view> fields) {
    route_.required = std::move(fields);
    return *this;
  }
  Line& or_nothing() {
    route_.optional_body = true;
    return *this;
  }
  Line& with_key() {
    route_.takes_key = true;
    return *this;
  }

 private:
  NativeRoute& route_;
};

class Table {
 public:
  Line add(HttpMethod method, std::string_view path, access::Action action, std::string_view operation,
           Handle handle, std::string_view summary) {
    routes_.push_back({.method = method,
                       .path = path,
                       .action = action,
                       .operation = operation,
                       .summary = summary,
                       .handle = handle});
    return Line(routes_.back());
  }
  std::vector<NativeRoute> take() && { return std::move(routes_); }

 private:
  std::vector<NativeRoute> routes_;
};

}  // namespace

/// Handlers are the class's own: what names them stands inside of it.
struct NativeRest::Routes {
  static void jobs(Table& table);
  static void job_actions(Table& table);
  static void tenants(Table& table);
  static void keys(Table& table);
  static void node_identities(Table& table);
  static void nodes(Table& table);
  static void reservations(Table& table);
  static void services(Table& table);
  static void cluster(Table& table);
  static void history(Table& table);
};

void NativeRest::Routes::jobs(Table& table) {
  const Descriptor* const job = v1::Job::descriptor();
  table
      .add(kPost, "v1/jobs", kSubmitJob, "submit_jobs", &NativeRest::submit,
           "Submits jobs: accepts all jobs of the request or none. The body may also be a single job.")
      .body(v1::SubmitJobsRequest::descriptor(), v1::JobRequest::descriptor())
      .answers(v1::SubmitJobsResponse::descriptor(), 201)
      .with_key();
  table
      .add(kPost, "v1/jobs:stream", kSubmitJob, "submit_job_stream", &NativeRest::submit_stream,
           "Submits one request per line, and answers each with one line, in order, once it is durable.")
      .body(v1::SubmitJobsRequest::descriptor(), v1::JobRequest::descriptor())
      .answers(v1::SubmitJobsResponse::descriptor())
      .as(Kind::kLines);
  table
      .add(kPost, "v1/jobs:plan", kPlanJob, "plan_job", &NativeRest::plan,
           "Predicts the outcome of the submission of one job, without submitting it.")
      .body(v1::SubmitJobsRequest::descriptor(), v1::JobRequest::descriptor())
      .needs({"jobs"})
      .answers(v1::PlanResponse::descriptor());
  table.add(kGet, "v1/jobs", kSeeJob, "list_jobs", &NativeRest::list_jobs, "Lists jobs, newest first.")
      .query(list_parameters())
      .answers(v1::ListJobsResponse::descriptor());
  table
      .add(kPost, "v1/jobs:cancel", kCancelJob, "cancel_jobs", &NativeRest::cancel_jobs,
           "Cancels several jobs, each with its own result.")
      .body(v1::CancelJobsRequest::descriptor())
      .answers(v1::CancelJobsResponse::descriptor());
  table.add(kGet, "v1/jobs/{job_id}", kSeeJob, "get_job", &NativeRest::get_job, "Returns one job.")
      .query({kTenant, kFields, kWait})
      .answers(job);
  table
      .add(kPatch, "v1/jobs/{job_id}", kUpdateJob, "update_job", &NativeRest::update_job,
           "Changes the given fields of a waiting or running job.")
      .query({kTenant})
      .body(v1::UpdateJobRequest::descriptor())
      .answers(job);
  table
      .add(kPost, "v1/jobs/{job_id}/cancel", kCancelJob, "cancel_job", &NativeRest::cancel_job,
           "Cancels a waiting job, or stops a running one.")
      .query({kTenant})
      .answers(job);
}

void NativeRest::Routes::job_actions(Table& table) {
  const Descriptor* const job = v1::Job::descriptor();
  table
      .add(kPost, "v1/jobs/{job_id}/hold", kHoldJob, "hold_job", &NativeRest::hold_job,
           "Holds a waiting job: it does not start until it is released.")
      .query({kTenant})
      .answers(job);
  table
      .add(kPost, "v1/jobs/{job_id}/release", kHoldJob, "release_job", &NativeRest::release_job,
           "Releases a held job.")
      .query({kTenant})
      .answers(job);
  table
      .add(kPost, "v1/jobs/{job_id}/requeue", kRequeueJob, "requeue_job", &NativeRest::requeue_job,
           "Stops a running job's attempt and puts the job back into the queue; no retry is used up.")
      .query({kTenant})
      .answers(job);
  table
      .add(kPost, "v1/jobs/{job_id}/rerun", kUpdateJob, "rerun_job", &NativeRest::rerun_job,
           "Submits an ended job again as it was asked for, as a new job of the caller.")
      .query({kTenant,
              {Type::kFlag, "failed", "Of an array: only the elements that failed."},
              {Type::kText, "indexes", "Of an array: only these elements, such as 3,7-9; %2: two at a time.",
               kArray}})
      .answers(v1::SubmitJobsResponse::descriptor(), 201)
      .with_key();
  table
      .add(kGet, "v1/jobs/{job_id}/history", kDescribeJob, "get_job_history", &NativeRest::get_history,
           "Lists what happened to a job, and who requested it.")
      .query({kTenant})
      .answers(v1::JobHistory::descriptor());
  table
      .add(kGet, "v1/jobs/{job_id}/explain", kDescribeJob, "explain_job", &NativeRest::explain_job,
           "Explains why a job waits, and which events could let it start.")
      .query({kTenant})
      .answers(v1::Explanation::descriptor());
  table
      .add(kGet, "v1/jobs/{job_id}/log", kReadJobOutput, "read_log", &NativeRest::read_log,
           "Reads an attempt's output.")
      .query(log_parameters())
      .as(Kind::kBytes);
  table
      .add(kGet, "v1/jobs/{job_id}/watch", kSeeJob, "watch_job", &NativeRest::watch_job,
           "Sends the job now and after every change, until it is final.")
      .query({kTenant, kFields})
      .answers(job)
      .as(Kind::kEvents);
  table.add(kGet, "v1/watch", kSeeJob, "watch", &NativeRest::watch, "Sends each job that changes.")
      .query(watch_parameters())
      .answers(job)
      .as(Kind::kEvents);
}

void NativeRest::Routes::history(Table& table) {
  constexpr NativeParameter kUser{Type::kText, "user", "Only what this user submitted."};
  table
      .add(kGet, "v1/history/jobs", kSeeJob, "list_history_jobs", &NativeRest::list_history,
           "Lists finished jobs of all time, newest first.")
      .query({{Type::kText, "tenant_id", "Only jobs of this tenant: an id or a name."},
              kUser,
              {Type::kText, "state", "Only jobs that ended so: completed, failed or cancelled.",
               "^(completed|failed|cancelled)?$"},
              {Type::kText, "node", "Only jobs of which an attempt was on this node."},
              {Type::kText, "since",
               "Only jobs submitted since this time, or within this duration, such as 30d.", kInstantOrSpan},
              {Type::kText, "until",
               "Only jobs submitted before this time, or longer ago than this duration.", kInstantOrSpan},
              {Type::kCount, "page_size", "Maximum number of jobs on a page: 50 if omitted, at most 1000."},
              {Type::kText, "page_token", "The next_page_token of the page before.",
               "^([0-9]{1,18}-[0-9]{1,18})?$"}})
      .answers(v1::ListHistoryJobsResponse::descriptor());
  table
      .add(kGet, "v1/usage", kSeeJob, "get_usage", &NativeRest::get_usage,
           "Adds up the allocated GPU time of all time, running jobs included.")
      .query(
          {{Type::kText, "tenant_id", "Only use of this tenant: an id or a name."},
           kUser,
           {Type::kText, "by",
            "What to add up by, comma-separated: tenant, user, model, node, day, month; one sum if omitted.",
            "^((tenant|user|model|node|day|month)(,(tenant|user|model|node|day|month)){0,5})?$"},
           {Type::kText, "since", "Only use since this time, or within this duration; whole hours.",
            kInstantOrSpan},
           {Type::kText, "until", "Only use before this time; whole hours.", kInstantOrSpan}})
      .answers(v1::UsageReport::descriptor());
  table
      .add(kPost, "v1/history:copy", kReadAudit, "copy_history", &NativeRest::copy_history,
           "Copies the history's database into a file beside it, on the scheduler's machine.")
      .answers(v1::CopyHistoryResponse::descriptor());
}

void NativeRest::Routes::tenants(Table& table) {
  const Descriptor* const tenant = v1::Tenant::descriptor();
  table
      .add(kPost, "v1/tenants", kCreateTenant, "create_tenant", &NativeRest::create_tenant,
           "Creates a tenant.")
      .body(tenant)
      .needs({"name"})
      .answers(tenant, 201)
      .with_key();
  table
      .add(kGet, "v1/tenants", kSeeTenant, "list_tenants", &NativeRest::list_tenants,
           "Lists tenants in the order of their ids.")
      .query({kTenantPage, kTenantToken})
      .answers(v1::ListTenantsResponse::descriptor());
  table
      .add(kGet, "v1/tenants/{tenant_id}", kSeeTenant, "get_tenant", &NativeRest::get_tenant,
           "Returns a tenant, by id or name.")
      .answers(tenant);
  table
      .add(kPatch, "v1/tenants/{tenant_id}", kUpdateTenant, "update_tenant", &NativeRest::update_tenant,
           "Changes the given settings of a tenant; null removes a limit.")
      .body(tenant)
      .answers(tenant);
  table
      .add(kDelete, "v1/tenants/{tenant_id}", kDeleteTenant, "delete_tenant", &NativeRest::delete_tenant,
           "Deletes a tenant that has no unfinished jobs and no tenants below it, and cancels its "
           "reservations.")
      .answers(v1::DeleteTenantResponse::descriptor());
  table
      .add(kPost, "v1/cluster:edit", kEditCluster, "edit_cluster", &NativeRest::edit_cluster,
           "Makes all the given changes of tenants and labels, or none; a dry run only checks whether it "
           "would.")
      .body(v1::EditClusterRequest::descriptor())
      .answers(v1::EditClusterResponse::descriptor());
}

void NativeRest::Routes::keys(Table& table) {
  const Descriptor* const key = v1::Key::descriptor();
  table
      .add(kPost, "v1/keys", kCreateKey, "create_key", &NativeRest::create_key,
           "Creates an API key; its secret is in this answer and nowhere else.")
      .body(v1::CreateKeyRequest::descriptor())
      .needs({"name"})
      .answers(key, 201);
  table
      .add(kGet, "v1/keys", kSeeKey, "list_keys", &NativeRest::list_keys,
           "Lists API keys in the order of their ids, without their secrets.")
      .query({{Type::kText, "tenant_id", "Only keys of this tenant: an id or a name."},
              {Type::kFlag, "with_ended", "Also keys that expired or were revoked in the last 90 days."},
              kKeyPage,
              kKeyToken})
      .answers(v1::ListKeysResponse::descriptor());
  table
      .add(kDelete, "v1/keys/{key_id}", kRevokeKey, "revoke_key", &NativeRest::revoke_key,
           "Revokes an API key, for ever.")
      .answers(key);
  table
      .add(kPost, "v1/keys/{key_id}/bind", kBindRole, "bind_role", &NativeRest::bind_role,
           "Gives a role to the holder of an API key, or takes one.")
      .body(v1::BindRoleRequest::descriptor())
      .needs({"role"})
      .answers(key);
}

void NativeRest::Routes::node_identities(Table& table) {
  table
      .add(kPost, "v1/node-tokens", kAdmitNode, "create_node_token", &NativeRest::create_node_token,
           "Creates a node token, with which one machine becomes the node of that name, once; its secret is "
           "in "
           "this answer and nowhere else.")
      .body(v1::CreateNodeTokenRequest::descriptor())
      .needs({"node_name"})
      .answers(v1::NodeToken::descriptor(), 201);
  table
      .add(kGet, "v1/node-identities", kSeeIdentity, "list_node_identities",
           &NativeRest::list_node_identities, "Lists the nodes that have certificates, by name.")
      .query({{Type::kCount, "page_size", "Maximum number of nodes on a page: 50 if omitted, at most 1000."},
              {Type::kText, "page_token", "The next_page_token of the page before."}})
      .answers(v1::ListNodeIdentitiesResponse::descriptor());
  table
      .add(kDelete, "v1/node-identities/{node_name}", kRevokeNode, "revoke_node", &NativeRest::revoke_node,
           "Revokes a node: ends its certificates and its connection.")
      .answers(v1::NodeIdentity::descriptor());
}

void NativeRest::Routes::nodes(Table& table) {
  const Descriptor* const node = v1::Node::descriptor();
  const Descriptor* const words = v1::DrainNodeRequest::descriptor();
  table.add(kGet, "v1/nodes", kSeeNode, "list_nodes", &NativeRest::list_nodes, "Lists nodes by name.")
      .answers(v1::ListNodesResponse::descriptor());
  table
      .add(kGet, "v1/machines", kSeeNode, "list_machines", &NativeRest::list_machines,
           "Lists pools of machines, and the machines that came from them, by name.")
      .answers(v1::ListMachinesResponse::descriptor());
  table.add(kGet, "v1/nodes/{node_name}", kSeeNode, "get_node", &NativeRest::get_node, "Returns a node.")
      .answers(node);
  table
      .add(kPost, "v1/nodes/{node_name}/drain", kDrainNode, "drain_node", &NativeRest::drain_node,
           "Drains a node: it gets no new jobs; running jobs continue.")
      .body(words)
      .or_nothing()
      .answers(node);
  table
      .add(kPost, "v1/nodes/{node_name}/resume", kResumeNode, "resume_node", &NativeRest::resume_node,
           "Returns a node to service.")
      .body(words)
      .or_nothing()
      .answers(node);
  table
      .add(kPost, "v1/nodes/{node_name}/reboot", kRebootNode, "reboot_node", &NativeRest::reboot_node,
           "Makes a drained node run its configured reboot command.")
      .body(words)
      .or_nothing()
      .answers(node);
  table
      .add(kPost, "v1/nodes/{node_name}/label", kLabelNode, "label_node", &NativeRest::label_node,
           "Sets and removes labels; they take precedence over those of the node's agent.")
      .body(v1::LabelNodeRequest::descriptor())
      .answers(node);
  table
      .add(kPost, "v1/nodes/{node_name}/confirm-dead", kConfirmNodeDead, "confirm_node_dead",
           &NativeRest::confirm_dead,
           "Declares a lost node dead: nothing runs on it any more, and its attempts are retried elsewhere.")
      .answers(node);
  table
      .add(kDelete, "v1/nodes/{node_name}", kRemoveNode, "remove_node", &NativeRest::remove_node,
           "Removes a node that is gone for good; 409 while it is connected, has work or is reserved.")
      .answers(v1::RemoveNodeResponse::descriptor());
  table
      .add(kPost, "v1/nodes/{node_name}/devices/{index}/condition", kSetDevice, "set_device_condition",
           &NativeRest::set_condition, "Quarantines a device, or ends its quarantine; running jobs continue.")
      .body(v1::SetDeviceConditionRequest::descriptor())
      .needs({"condition"})
      .answers(node);
}

void NativeRest::Routes::reservations(Table& table) {
  table
      .add(kPost, "v1/reservations", kMakeReservation, "create_reservation", &NativeRest::create_reservation,
           "Reserves nodes for a tenant, or for maintenance, at a set time.")
      .body(v1::Reservation::descriptor())
      .needs({"name", "node_names", "duration_ms"})
      .answers(v1::Reservation::descriptor(), 201);
  table
      .add(kGet, "v1/reservations", kSeeReservation, "list_reservations", &NativeRest::list_reservations,
           "Lists reservations by start; those that have ended are not kept.")
      .answers(v1::ListReservationsResponse::descriptor());
  table
      .add(kDelete, "v1/reservations/{reservation}", kCancelReservation, "cancel_reservation",
           &NativeRest::cancel_reservation, "Cancels a reservation, by name or id; running jobs continue.")
      .answers(v1::CancelReservationResponse::descriptor());
}

void NativeRest::Routes::services(Table& table) {
  const Descriptor* const service = v1::Service::descriptor();
  table
      .add(kPost, "v1/services", kSubmitJob, "create_service", &NativeRest::create_service,
           "Creates a service: jobs that are kept running, several of a kind at a time.")
      .body(v1::CreateServiceRequest::descriptor())
      .needs({"name", "job"})
      .with_key()
      .answers(service, 201);
  table
      .add(kGet, "v1/services", kSeeJob, "list_services", &NativeRest::list_services,
           "Lists services by tenant and name.")
      .query({{Type::kText, "tenant_id", "Only services of this tenant: an id or a name."}})
      .answers(v1::ListServicesResponse::descriptor());
  table
      .add(kGet, "v1/services/{service}", kSeeJob, "get_service", &NativeRest::get_service,
           "Returns a service, by its name or that of its record, with its replicas.")
      .query({kServiceTenant})
      .answers(service);
  table
      .add(kPost, "v1/services/{service}/scale", kUpdateJob, "scale_service", &NativeRest::scale_service,
           "Changes how many replicas a service has, or which waiting jobs their number follows.")
      .query({kServiceTenant})
      .body(v1::ScaleServiceRequest::descriptor())
      .answers(service);
  table
      .add(kPost, "v1/services/{service}/rollout", kSubmitJob, "roll_out_service",
           &NativeRest::roll_out_service,
           "Replaces the replicas of a service, named by its name, one by one; each old one runs until its "
           "new "
           "one is ready.")
      .query({{Type::kText, "tenant_id", "The service's tenant: an id or a name; the caller's if omitted."}})
      .body(v1::RollOutServiceRequest::descriptor())
      .needs({"job"})
      .with_key()
      .answers(service);
  table
      .add(kDelete, "v1/services/{service}", kCancelJob, "delete_service", &NativeRest::delete_service,
           "Deletes a service, and ends its replicas.")
      .query({kServiceTenant})
      .answers(service);
}

void NativeRest::Routes::cluster(Table& table) {
  table
      .add(kGet, "v1/cluster", kSeeCluster, "get_cluster", &NativeRest::get_cluster,
           "Returns the cluster's totals.")
      .answers(v1::Cluster::descriptor());
  table
      .add(kPost, "v1/cluster/pause", kPauseStarts, "pause_starts", &NativeRest::pause_starts,
           "Pauses the cluster: no job starts until it is resumed; running jobs continue, and submissions "
           "are accepted.")
      .body(v1::PauseStartsRequest::descriptor())
      .or_nothing()
      .answers(v1::Cluster::descriptor());
  table
      .add(kPost, "v1/cluster/resume", kPauseStarts, "resume_starts", &NativeRest::resume_starts,
           "Resumes a paused cluster.")
      .body(v1::PauseStartsRequest::descriptor())
      .or_nothing()
      .answers(v1::Cluster::descriptor());
  table
      .add(kGet, "v1/quality", kSeeQuality, "get_quality", &NativeRest::get_quality,
           "Returns how accurate the predicted run times and starts were.")
      .query({{Type::kText, "tenant_id", "Only the figures of this tenant: an id or a name."}})
      .answers(v1::Quality::descriptor());
  table
      .add(kGet, "v1/moves", kSeeMoves, "get_moves", &NativeRest::get_moves,
           "Proposes moves of running jobs that would let others start; changes nothing. For operators.")
      .query({{Type::kText, "tenant_id", "Refused: moves concern the jobs of all tenants."},
              {Type::kText, "job_id", "Only moves for this waiting job.", "^(job-[1-9][0-9]{0,17})?$"},
              {Type::kCount,
               "moves_max",
               "Maximum number of moves for one job: 4 if omitted, at most 16.",
               {},
               int64_t{limits::kMovesMax}}})
      .answers(v1::Moves::descriptor());
  table
      .add(kPost, "v1/moves", kMoveJobs, "apply_moves", &NativeRest::apply_moves,
           "Carries out a proposal, if it is still valid.")
      .body(v1::ApplyMovesRequest::descriptor())
      .needs({"id"})
      .answers(v1::MoveProposal::descriptor());
  table
      .add(kGet, "v1/login", kSeeHealth, "get_login", &NativeRest::get_login,
           "Says where people log in and with what, to callers without a credential, too.")
      .answers(v1::LoginInfo::descriptor());
  table
      .add(kGet, "v1/whoami", kSeeHealth, "who_am_i", &NativeRest::who_am_i,
           "Returns who the caller is to the scheduler, and its roles.")
      .answers(v1::WhoAmI::descriptor());
  table
      .add(kGet, "v1/openapi.json", kSeeHealth, "get_openapi", &NativeRest::openapi, "Returns this document.")
      .as(Kind::kDocument);
  table
      .add(kGet, "openapi.json", kSeeHealth, "get_root_openapi", &NativeRest::openapi,
           "Returns this document.")
      .as(Kind::kDocument);
  table
      .add(kGet, "docs", kSeeHealth, "get_docs", &NativeRest::docs,
           "Shows this document to people, without a credential, too.")
      .as(Kind::kPage);
}

std::span<const NativeRoute> NativeRest::routes() {
  static const std::vector<NativeRoute> kRoutes = [] {
    Table table;
    Routes::jobs(table);
    Routes::job_actions(table);
    Routes::history(table);
    Routes::tenants(table);
    Routes::keys(table);
    Routes::node_identities(table);
    Routes::nodes(table);
    Routes::reservations(table);
    Routes::services(table);
    Routes::cluster(table);
    return std::move(table).take();
  }();
  return kRoutes;
}

}  // namespace gpusched::api
