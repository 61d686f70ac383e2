#include <array>

#include "api/doors/docs/call_words.h"
#include "api/fields/field_shapes.h"
#include "base/limits.h"
#include "base/session_limits.h"

namespace gpusched::api {
namespace {

using HttpMethod::kDelete, HttpMethod::kGet, HttpMethod::kPost, HttpMethod::kPut;

constexpr double kManyMax = 1e15;
constexpr std::string_view kLeaseStatus = "PROVISIONING AVAILABLE BUSY DEPROVISIONING DEPROVISIONED ERROR";
constexpr std::string_view kLeaseHealth = "HEALTHY UNHEALTHY DEGRADED UNKNOWN";

FieldDoc lease_minutes() {
  return {.name = "lease_minutes",
          .type = "integer?",
          .meaning = "how long, from now on: 60 if omitted",
          .least = 1,
          .most = static_cast<double>(limits::kRuntimeMax.ns / minutes(1).ns)};
}

std::vector<FieldDoc> user_fields(bool is_new) {
  return {{.name = "email",
           .type = is_new ? "text" : "text?",
           .meaning = "one user's alone",
           .pattern = "^[^@ ]+@[^@ ]+$",
           .most = limits::kNameBytesMax,
           .required = is_new},
          {.name = "password", .type = "text?", .meaning = "kept as its hash alone", .most = 1'024},
          {.name = "organization_id", .type = "text?", .meaning = "the caller's own if omitted"},
          {.name = "role",
           .type = "text?",
           .meaning = "of the user's API key: `user` if omitted",
           .words = "viewer user tenant_admin"},
          {.name = "is_active", .type = "boolean?", .meaning = "true if omitted"}};
}

const std::vector<SchemaDoc> kLeaseSchemas = {
    {"allocation.Request",
     {{.name = "gpu_model", .type = "text?", .meaning = "model of the GPUs", .most = limits::kNameBytesMax},
      {.name = "count",
       .type = "integer?",
       .meaning = "number of GPUs: 1 if omitted",
       .least = 1,
       .most = limits::kDevicesPerNodeMax},
      {.name = "min_memory_gb", .type = "number?", .meaning = "least memory of each GPU", .most = 1e6},
      {"requirements", "allocation.Requirements?", "the same, as others say it"},
      {.name = "region", .type = "text?", .meaning = "kept as a label", .most = limits::kLabelBytesMax},
      {.name = "user_region",
       .type = "text?",
       .meaning = "instead of `region`",
       .most = limits::kLabelBytesMax},
      {.name = "job_type", .type = "text?", .meaning = "kept as a label", .most = limits::kLabelBytesMax},
      lease_minutes(),
      {.name = "cpu_cores",
       .type = "integer?",
       .meaning = "CPU cores beside them",
       .least = 1,
       .most = 100'000},
      {.name = "memory_mb",
       .type = "integer?",
       .meaning = "memory beside them",
       .most = limits::kMegabytesMax},
      {"user", "text?", "as whom its sessions run"},
      {.name = "name", .type = "text?", .meaning = "its name", .most = limits::kNameBytesMax}},
     true},
    {"allocation.Requirements",
     {{.name = "min_memory_gb", .type = "number?", .meaning = "least memory of each GPU", .most = 1e6}},
     true},
    {"allocation.Allocated",
     {{"task_id", "text", "its job"}, {"gpu_id", "text", "its id here"}, {"message", "text"}}},
    {"allocation.Lease",
     {{"id", "text"},
      {"organization_id", "text"},
      {"user_id", "text"},
      {"instance_id", "text?", "its node"},
      {"instance_public_ip", "text?"},
      {"hostname", "text?", "its node"},
      {"status", "text", "what becomes of it", {}, kLeaseStatus},
      {"health_state", "text", "that of the worst of its GPUs", {}, kLeaseHealth},
      {"cost_per_hour", "number"},
      {"lease_expires_at", "time?", "when it ends, or ended"},
      {"last_seen", "time?", "its last heartbeat"},
      {"created_at", "time?"},
      {"updated_at", "time?"},
      {"job_id", "text", "its job, at the other doors"},
      {"gpu_count", "integer"},
      {"gpu_model", "text"},
      {"message", "text", "why it has that status"},
      {"gpus", "[text]", "its GPUs"},
      {"gpu_uuids", "[text]", "the same, as drivers name them"},
      {"environment", "{text}", "what programs of its holder need"},
      {"how_to_use", "[text]", "commands for its holder"}}},
    {"allocation.Renewal", {lease_minutes()}, true},
    {"allocation.Heartbeat", {}, true},
    {"allocation.OrganizationRequest",
     {{.name = "name",
       .type = "text",
       .meaning = "its name",
       .most = limits::kNameBytesMax,
       .required = true},
      {.name = "max_active_gpus",
       .type = "integer?",
       .meaning = "how many GPUs it may have: 5 if omitted",
       .most = INT32_MAX}},
     true},
    {"allocation.Organization",
     {{"id", "text"},
      {"name", "text"},
      {"max_active_gpus", "integer"},
      {"created_at", "time?"},
      {"updated_at", "time?"}}},
    {"allocation.KeyRequest",
     {{.name = "expires_in_days",
       .type = "integer?",
       .meaning = "30 if omitted; null: never",
       .least = 1,
       .most = 36'500},
      {.name = "user_id", .type = "text?", .meaning = "the user whose key it is"}},
     true},
    {"allocation.NewUser", user_fields(true), true},
    {"allocation.UserChange", user_fields(false), true},
    {"allocation.User",
     {{"id", "text"},
      {"email", "text"},
      {"organization_id", "text?"},
      {"role", "text"},
      {"is_active", "boolean"},
      {"created_at", "time?"},
      {"updated_at", "time?"}}},
    {"allocation.Key",
     {{"id", "text"},
      {"key", "text", "the key with its secret; in the answer that made it alone"},
      {"key_prefix", "text", "how it begins"},
      {"user_id", "text"},
      {"organization_id", "text"},
      {"expires_at", "time?"},
      {"last_used_at", "time?"},
      {"created_at", "time?"}}},
    {"allocation.Health", {{"status", "text", "`ok`"}}},
    {"allocation.Error",
     {{.name = "detail",
       .type = "any",
       .meaning = "a sentence, or of a request a list of what is wrong with it",
       .required = true}}}};

/// Each path is also below `gpus`, as clients have it.
void twice(std::vector<CallDoc>& calls, const CallDoc& call, std::string_view other_path,
           std::string_view other_operation) {
  calls.push_back(call);
  calls.push_back(call);
  calls.back().path = other_path;
  calls.back().operation = other_operation;
}

/// Calls for what is made beside leases.
void add_organizations_and_keys(std::vector<CallDoc>& calls) {
  calls.push_back({kPost,
                   "api/gpuscheduler/v1/organizations",
                   "allocation_create_organization",
                   "Creates an organization, which is a tenant.",
                   {},
                   "allocation.OrganizationRequest",
                   false,
                   201,
                   "allocation.Organization",
                   {},
                   true});
  calls.push_back({kPost,
                   "api/gpuscheduler/v1/users",
                   "allocation_create_user",
                   "Records a user, for whom an API key can be made.",
                   {},
                   "allocation.NewUser",
                   false,
                   201,
                   "allocation.User"});
  calls.push_back({kGet,
                   "api/gpuscheduler/v1/users",
                   "allocation_list_users",
                   "Lists users, the oldest first.",
                   {{.name = "skip", .type = "integer", .meaning = "0 if omitted", .most = INT32_MAX},
                    {.name = "limit", .type = "integer", .meaning = "1,000 if omitted, and at most"}},
                   {},
                   false,
                   200,
                   "[allocation.User]"});
  calls.push_back({kPut,
                   "api/gpuscheduler/v1/users/{user_id}",
                   "allocation_update_user",
                   "Changes what is given of a user. One who is active no more loses the API key.",
                   {},
                   "allocation.UserChange",
                   false,
                   200,
                   "allocation.User"});
  calls.push_back({kPost,
                   "api/gpuscheduler/v1/api-keys",
                   "allocation_create_key",
                   "Creates an API key; its secret is in this answer and nowhere else.",
                   {},
                   "allocation.KeyRequest",
                   true,
                   201,
                   "allocation.Key"});
  calls.push_back({kGet,
                   "api/gpuscheduler/v1/api-keys",
                   "allocation_list_keys",
                   "Lists API keys, without their secrets.",
                   {},
                   {},
                   false,
                   200,
                   "[allocation.Key]"});
  calls.push_back({kDelete,
                   "api/gpuscheduler/v1/api-keys/{key_id}",
                   "allocation_revoke_key",
                   "Revokes an API key, for ever.",
                   {},
                   {},
                   false,
                   200,
                   "allocation.Key"});
}

/// Calls that change or end a lease.
void add_lease_changes(std::vector<CallDoc>& calls) {
  twice(calls,
        {kDelete,
         "api/gpuscheduler/v1/gpu/{gpu_id}",
         "allocation_release",
         "Ends a lease.",
         {},
         {},
         false,
         200,
         "allocation.Lease"},
        "api/gpuscheduler/v1/gpus/gpu/{gpu_id}", "allocation_gpus_release");
  twice(calls,
        {kPut,
         "api/gpuscheduler/v1/gpu/{gpu_id}/heartbeat",
         "allocation_heartbeat",
         "Says that a lease is still in use; renews nothing.",
         {},
         "allocation.Heartbeat",
         true,
         200,
         "allocation.Lease"},
        "api/gpuscheduler/v1/gpus/gpu/{gpu_id}/heartbeat", "allocation_gpus_heartbeat");
  twice(calls,
        {kPost,
         "api/gpuscheduler/v1/gpu/{gpu_id}/renew",
         "allocation_renew",
         "Renews a lease.",
         {},
         "allocation.Renewal",
         true,
         200,
         "allocation.Lease"},
        "api/gpuscheduler/v1/gpus/gpu/{gpu_id}/renew", "allocation_gpus_renew");
}

std::vector<CallDoc> lease_calls() {
  std::vector<CallDoc> calls = {{kGet,
                                 "api/gpuscheduler/v1/health",
                                 "allocation_health",
                                 "Says that the door is open; without a credential, too.",
                                 {},
                                 {},
                                 false,
                                 200,
                                 "allocation.Health"}};
  twice(calls,
        {kPost,
         "api/gpuscheduler/v1/allocate",
         "allocation_allocate",
         "Allocates GPUs for a time.",
         {},
         "allocation.Request",
         false,
         202,
         "allocation.Allocated",
         {},
         true},
        "api/gpuscheduler/v1/gpus/allocate", "allocation_gpus_allocate");
  twice(
      calls,
      {kGet,
       "api/gpuscheduler/v1/gpus",
       "allocation_list",
       "Lists leases.",
       {{"status", "text", "Only those with this status.", {}, kLeaseStatus},
        {"health", "text", "Only those with this health.", {}, kLeaseHealth},
        {.name = "skip", .type = "integer", .meaning = "How many to leave out.", .most = 2'147'483'648},
        {.name = "limit", .type = "integer", .meaning = "Maximum number: 100 if omitted.", .most = kManyMax}},
       {},
       false,
       200,
       "[allocation.Lease]"},
      "api/gpuscheduler/v1/gpus/gpus", "allocation_gpus_list");
  twice(calls,
        {kGet,
         "api/gpuscheduler/v1/gpu/{gpu_id}",
         "allocation_get",
         "Returns a lease.",
         {},
         {},
         false,
         200,
         "allocation.Lease"},
        "api/gpuscheduler/v1/gpus/gpu/{gpu_id}", "allocation_gpus_get");
  add_lease_changes(calls);
  add_organizations_and_keys(calls);
  return calls;
}

const std::vector<SchemaDoc> kTaskSchemas = {
    {"tasks.Request",
     {{.name = "priority",
       .type = "text",
       .meaning = "`high`: online work; `low`: batch work",
       .words = "high low",
       .required = true},
      {.name = "gpu_count",
       .type = "integer",
       .meaning = "number of GPUs",
       .least = 1,
       .most = limits::kGpusPerJobMax,
       .required = true},
      {.name = "gpu_model",
       .type = "text?",
       .meaning = "model of the GPUs",
       .pattern = kPrintable,
       .most = limits::kNameBytesMax},
      {.name = "command", .type = "text", .meaning = "one line, split as a shell would", .required = true},
      {.name = "env", .type = "{text}?", .meaning = "environment", .items_max = limits::kEnvironmentCountMax},
      {.name = "name", .type = "text?", .meaning = "its name", .most = limits::kNameBytesMax},
      {.name = "tenant_id",
       .type = "text?",
       .meaning = "the tenant, by id or name",
       .most = limits::kNameBytesMax}},
     true},
    {"tasks.Submitted", {{"task_id", "text"}, {"status", "text", "`pending`"}, {"created_at", "time?"}}},
    {"tasks.Task",
     {{"task_id", "text", "its job's id"},
      {"id", "text", "the same"},
      {"priority", "text", {}, {}, "high low"},
      {"gpu_count", "integer"},
      {"gpu_model", "text?"},
      {"command", "text?", "as it was sent"},
      {"env", "{text}"},
      {"status", "text", {}, {}, "pending running success failed cancelled"},
      {"assigned_gpus", "[text]"},
      {"created_at", "time?"},
      {"started_at", "time?"},
      {"finished_at", "time?"},
      {"error", "text?", "why it failed"},
      {"reason", "text?", "why it waits, in one word"},
      {"message", "text?", "where it stands, in one sentence"},
      {"exit_code", "integer"}}},
    {"tasks.Tasks", {{"tasks", "[tasks.Task]"}, {"total", "integer", "all that match"}}},
    {"tasks.Gpu",
     {{"id", "text"},
      {"node_id", "text"},
      {"device_index", "integer"},
      {"model", "text"},
      {"memory", "integer", "in MiB"},
      {"status", "text", {}, {}, "idle busy offline"},
      {"current_task", "text?"},
      {"updated_at", "time?"}}},
    {"tasks.Gpus",
     {{"total", "integer"},
      {"idle", "integer"},
      {"busy", "integer"},
      {"offline", "integer"},
      {"gpus", "[tasks.Gpu]"}}},
    {"tasks.Pool", {{"quota", "integer"}, {"used", "integer"}, {"available", "integer"}}},
    {"tasks.Quota", {{"total_gpus", "integer"}, {"online", "tasks.Pool"}, {"batch", "tasks.Pool"}}},
    {"tasks.QuotaRequest",
     {{.name = "online_percent",
       .type = "number",
       .meaning = "share of the GPUs that online work has",
       .most = 1,
       .required = true}},
     true}};

std::vector<CallDoc> task_calls() {
  return {
      {kPost,
       "api/v1/tasks",
       "tasks_submit",
       "Submits a task.",
       {},
       "tasks.Request",
       false,
       201,
       "tasks.Submitted",
       {},
       true},
      {kGet,
       "api/v1/tasks",
       "tasks_list",
       "Lists tasks, newest first.",
       {{"tenant_id", "text", "Only tasks of this tenant: an id or a name."},
        {"status", "text", "Only tasks with this status.", {}, "pending running success failed cancelled"},
        {"priority", "text", "Only online or batch work.", {}, "high low"},
        {.name = "limit", .type = "integer", .meaning = "Maximum number: 50 if omitted.", .most = kManyMax}},
       {},
       false,
       200,
       "tasks.Tasks"},
      {kGet, "api/v1/tasks/{task_id}", "tasks_get", "Returns a task.", {}, {}, false, 200, "tasks.Task"},
      {kDelete,
       "api/v1/tasks/{task_id}",
       "tasks_cancel",
       "Cancels a task, or stops a running one.",
       {},
       {},
       false,
       200,
       "jobs.Message"},
      {kGet, "api/v1/gpus", "tasks_list_gpus", "Lists GPUs.", {}, {}, false, 200, "tasks.Gpus"},
      {kGet,
       "api/v1/quota",
       "tasks_get_quota",
       "Returns how the GPUs are divided.",
       {},
       {},
       false,
       200,
       "tasks.Quota"},
      {kPut,
       "api/v1/quota",
       "tasks_set_quota",
       "Divides the GPUs between online and batch work.",
       {},
       "tasks.QuotaRequest",
       false,
       200,
       "jobs.Message"}};
}

}  // namespace

DoorDoc tasks_door_doc() {
  return {.tag = "tasks",
          .meaning = "The tasks door: docs/reference/tasks.md.",
          .calls = task_calls(),
          .schemas = kTaskSchemas};
}

DoorDoc allocation_door_doc() {
  return {
      .tag = "allocation",
      .meaning = "The allocation door: docs/reference/allocations.md. It may have a port of its own, too.",
      .error = "AllocationError",
      .calls = lease_calls(),
      .schemas = kLeaseSchemas};
}

DoorDoc agent_tasks_doc() {
  return {.tag = "agent_tasks",
          .meaning =
              "What is told of tasks of agents: docs/reference/agent-tasks.md. They may have a port of "
              "their own, too.",
          .calls = {{kGet,
                     "gpu/metrics",
                     "agent_tasks_gpus",
                     "Returns what is measured of each GPU.",
                     {},
                     {},
                     false,
                     200,
                     "[agent_tasks.Gpu]"},
                    {kGet,
                     "queue/status",
                     "agent_tasks_queue",
                     "Returns which tasks wait and run.",
                     {},
                     {},
                     false,
                     200,
                     "agent_tasks.Queue"}},
          .schemas = {{"agent_tasks.Gpu",
                       {{"gpu_id", "integer"},
                        {"memory_total_mb", "integer"},
                        {"memory_used_mb", "integer"},
                        {"memory_free_mb", "integer"},
                        {"compute_util_percent", "integer"},
                        {"memory_util_percent", "integer"},
                        {"temperature_celsius", "integer"},
                        {"last_updated_unix", "integer"}}},
                      {"agent_tasks.Task", {{"id", "text"}, {"user_id", "text"}, {"type", "text"}}},
                      {"agent_tasks.Queue",
                       {{"queue_size", "integer"},
                        {"running_count", "integer"},
                        {"pending", "[agent_tasks.Task]"},
                        {"running", "[agent_tasks.Task]"}}},
                      {"agent_tasks.Metrics",
                       {{"timestamp", "integer", "now, in Unix seconds"},
                        {"queue_size", "integer"},
                        {"running_tasks", "integer"},
                        {"completed_tasks", "integer"},
                        {"failed_tasks", "integer"},
                        {"rejected_tasks", "integer"},
                        {"gpu_metrics", "text", "JSON, as of /gpu/metrics"}}}}};
}

DoorDoc sessions_doc() {
  const FieldDoc tenant{"tenant_id", "text", "Only if the job belongs to this tenant: an id or a name."};
  const std::vector<FieldDoc> file = {
      {.name = "path",
       .type = "text",
       .meaning = "The file, from the job's working directory.",
       .pattern = "^[^\\x00]+$",
       .most = limits::kPathBytesMax,
       .required = true},
      tenant,
      {.name = "attempt", .type = "integer", .meaning = "The latest if omitted.", .most = 1e6},
      {.name = "member", .type = "integer", .meaning = "Of a gang: its rank.", .most = limits::kMembersMax}};
  const CallDoc open{
      kGet,           "v1/jobs/{job_id}/session",
      "open_session", "A WebSocket with a command inside of a running job, as gpu-cli exec speaks it.",
      {tenant},       {},
      false,          101};
  const CallDoc read{
      kGet, "v1/jobs/{job_id}/files",  "read_file", "Reads a file of a job.", file, {}, false, 200,
      {},   "application/octet-stream"};
  std::vector<CallDoc> calls;
  twice(calls, open, "api/v1/jobs/{job_id}/session", "jobs_open_session");
  twice(calls, read, "api/v1/jobs/{job_id}/files", "jobs_read_file");
  return {.tag = "sessions", .meaning = "Sessions and files of jobs.", .calls = std::move(calls)};
}

DoorDoc sign_in_doc() {
  const auto page = [](HttpMethod method, std::string_view path, std::string_view name,
                       std::string_view summary) {
    return CallDoc{
        .method = method, .path = path, .operation = name, .summary = summary, .media = "text/html"};
  };
  CallDoc login = page(kGet, "login", "sign_in", "Leads a browser to the provider of identities.");
  login.status = 303;
  CallDoc callback =
      page(kGet, "login/callback", "sign_in_finish", "Where the provider leads back to: a session begins.");
  callback.query = {{"code", "text", "The provider's, which is exchanged once."},
                    {"state", "text", "What the sign-in was begun with."},
                    {"iss", "text", "The provider, where it names itself."},
                    {"error", "text", "Why there is no code."}};
  return {.tag = "signing in",
          .meaning =
              "Pages for people with a browser, where that is switched on: docs/operate/jwt.md. Refusals are "
              "pages, too, except where it is off.",
          .calls = {login, callback, page(kGet, "me", "show_me", "Who one is, and one's newest jobs."),
                    page(kPost, "logout", "sign_out", "Ends the browser's session.")}};
}

DoorDoc metrics_doc() {
  return {.tag = "metrics",
          .meaning = "Figures: docs/reference/metrics.md.",
          .calls = {
              {kGet,
               "api/v1/metrics",
               "get_metrics",
               "Returns figures for Prometheus.",
               {},
               {},
               false,
               200,
               {},
               "text/plain"},
              {kGet,
               "metrics",
               "get_port_metrics",
               "At the port of metrics: figures for Prometheus. At a port of tasks of agents: their figures "
               "as JSON. Not on the port of the API.",
               {},
               {},
               false,
               200,
               "agent_tasks.Metrics",
               "text/plain"}}};
}

std::span<const DoorDoc> door_docs() {
  static const std::array<DoorDoc, 7> kAll = {jobs_door_doc(),   tasks_door_doc(), allocation_door_doc(),
                                              agent_tasks_doc(), sessions_doc(),   sign_in_doc(),
                                              metrics_doc()};
  return kAll;
}

}  // namespace gpusched::api
