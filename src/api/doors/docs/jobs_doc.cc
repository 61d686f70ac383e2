#include <google/protobuf/timestamp.pb.h>

#include "api/doors/docs/call_words.h"
#include "api/fields/field_shapes.h"
#include "api/fields/job_rows.h"
#include "api/fields/node_rows.h"
#include "api/fields/tenants/tenant_rows.h"
#include "base/limits.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;
using HttpMethod::kDelete, HttpMethod::kGet, HttpMethod::kPost, HttpMethod::kPut;

constexpr FieldDoc kTenant{"tenant_id", "text", "Only if the job belongs to this tenant: an id or a name."};
constexpr FieldDoc kState{"state",
                          "text",
                          "Only jobs in this state.",
                          {},
                          "pending scheduled running completed failed cancelled preempted"};
constexpr FieldDoc kOfTenant{"tenant_id", "text", "Only jobs of this tenant: an id or a name."};

constexpr double kHugeMax = 1e15;  ///< For a number without a bound of its own.

/// The shape of the field of that row in the native API; null: nothing is said of it.
const FieldShape* shape_of_row(const JobRow& row) {
  const auto of = [&row](std::string_view message) {
    return shape_of(std::string(message) + "." + std::string(row.name));
  };
  switch (row.message) {
    case JobMessage::kSpec:
      return of("JobSpec");
    case JobMessage::kResources:
      return of("Resources");
    case JobMessage::kRetry:
      return of("RetryPolicy");
    case JobMessage::kRequest:
      return of("JobRequest");
    case JobMessage::kNone:
      return nullptr;
  }
  UNREACHABLE();
}

std::string_view door_type(const JobRow& row) {
  const std::string_view words = type_of(row, true);
  if (words == "text") return "text?";
  if (words == "number") return "number?";
  if (words == "whole number") return "integer?";
  if (words == "true or false") return "boolean?";
  if (words == "list of texts") return "[text]?";
  if (words == "object of texts") return "{text}?";
  if (words == "object of whole numbers") return "{integer}?";
  if (words == "time") return "time?";
  return "any";
}

/// A job as the jobs door takes it: its rows, in its units.
SchemaDoc job_request() {
  SchemaDoc schema{.name = "jobs.JobRequest", .fields = {}, .open = true};
  schema.fields.push_back({.name = "tenant_id",
                           .type = "text?",
                           .meaning = "the tenant, by id or name; the caller's if omitted",
                           .most = limits::kNameBytesMax});
  for (const JobRow& row : job_rows()) {
    if (row.door.empty()) continue;
    FieldDoc field{.name = row.door, .type = door_type(row), .meaning = row.meaning};
    const auto scale = static_cast<double>(scale_of(row.unit));
    const FieldShape* const shape = shape_of_row(row);
    if (row.most != kNoBound) {
      field.least = static_cast<double>(row.least) / scale;
      field.most = static_cast<double>(row.most) / scale;
    }
    if (shape != nullptr) {
      field.pattern = shape->pattern;
      if (shape->least != INT64_MIN) field.least = static_cast<double>(shape->least) / scale;
      if (shape->most != INT64_MAX) field.most = static_cast<double>(shape->most) / scale;
      if (shape->bytes_max >= 0) field.most = static_cast<double>(shape->bytes_max);
      if (shape->items_max >= 0) field.items_max = shape->items_max;
      if (!shape->keys.empty()) {
        field.words = shape->keys;
        field.most = kHugeMax;
      }
    }
    if (row.door == "mounts") field.pattern = kMountText;
    schema.fields.push_back(field);
  }
  return schema;
}

/// Type that the jobs door shows a message's field with.
std::string_view shown_type(const pb::Descriptor& message, int number, std::string_view list_of) {
  const pb::FieldDescriptor* const field = message.FindFieldByNumber(number);
  if (field == nullptr) return "any";
  using F = pb::FieldDescriptor;
  if (field->message_type() == pb::Timestamp::descriptor()) return "time?";
  if (field->cpp_type() == F::CPPTYPE_MESSAGE) return list_of;
  if (field->is_repeated()) return "[text]";
  switch (field->cpp_type()) {
    case F::CPPTYPE_BOOL:
      return "boolean";
    case F::CPPTYPE_STRING:
    case F::CPPTYPE_ENUM:
      return "text";
    default:
      return "number";  // Cores may have fractions, and hours.
  }
}

/// Schema of a tenant's settings; a new one needs a name.
SchemaDoc tenant_request(std::string schema_name, bool is_new) {
  SchemaDoc schema{.name = std::move(schema_name), .fields = {}, .open = true};
  for (const TenantRow& row : tenant_rows()) {
    const bool is_text = std::holds_alternative<std::optional<std::string> TenantSettings::*>(row.place);
    const bool is_flag = std::holds_alternative<std::optional<bool> TenantSettings::*>(row.place);
    FieldDoc field{.name = row.name, .meaning = row.meaning};
    const auto scale = static_cast<double>(row.scale);
    if (!is_flag && row.most != INT64_MAX) {
      field.least = static_cast<double>(row.least) / scale;
      field.most = static_cast<double>(row.most) / scale;
    }
    if (row.form == TenantForm::kTier) {
      field.type = "integer-or-text?";
      field.pattern = "^(low|medium|high|critical)?$";
    } else {
      field.type = is_text                             ? "text?"
                   : is_flag                           ? "boolean?"
                   : row.form == TenantForm::kFraction ? "number?"
                                                       : "integer?";
    }
    if (row.name == "name") {
      field.required = is_new;
      field.type = "text";
      field.pattern = R"(^(?!default$|tenant-[0-9]+$)[^\x00-\x1f\x7f]+$)";
    } else if (const FieldShape* const shape = shape_of("Tenant." + std::string(row.name))) {
      field.pattern = shape->pattern;
    }
    schema.fields.push_back(field);
  }
  return schema;
}

SchemaDoc tenant() {
  SchemaDoc schema{.name = "jobs.Tenant", .fields = {{"id", "text", "`tenant-<digits>`"}}};
  for (const TenantRow& row : tenant_rows()) {
    const bool is_text = std::holds_alternative<std::optional<std::string> TenantSettings::*>(row.place);
    const bool is_flag = std::holds_alternative<std::optional<bool> TenantSettings::*>(row.place);
    const bool is_word = is_text || row.form == TenantForm::kTier;
    schema.fields.push_back({.name = row.name,
                             .type = is_word        ? "text"
                                     : is_flag      ? "boolean"
                                     : row.is_limit ? "number?"
                                                    : "number",
                             .meaning = row.meaning});
  }
  for (const ShownRow<TenantView>& row : shown_tenant_rows()) {
    if (row.door.empty() || find_tenant_row(row.door) != nullptr) continue;
    schema.fields.push_back({.name = row.door,
                             .type = shown_type(*v1::Tenant::descriptor(), row.number, "any"),
                             .meaning = row.meaning});
  }
  return schema;
}

SchemaDoc shown_of(std::string name, const pb::Descriptor& message, std::string_view list_of) {
  SchemaDoc schema{.name = std::move(name), .fields = {}};
  for (const NodeDoorField& row : node_door_fields(message))
    schema.fields.push_back(
        {.name = row.door, .type = shown_type(message, row.number, list_of), .meaning = row.meaning});
  return schema;
}

/// Fields that a job is shown with, under either name of its id.
const std::vector<FieldDoc> kJobFields = {
    {"tenant_id", "text", "its tenant"},
    {"name", "text", "its name"},
    {"state",
     "text",
     "`pending`, `scheduled`, `running`, `completed`, `failed`, `cancelled` or `preempted`",
     {},
     "pending scheduled running completed failed cancelled preempted"},
    {"status", "text", "the same"},
    {"final", "boolean", "nothing changes it any more"},
    {"reason", "text", "why it has that state, as a word"},
    {"cause", "text", "how its last attempt ended"},
    {"message", "text", "why it has that state, as a sentence"},
    {"priority", "integer", "its own, without its tenant's tier"},
    {"gpu_count", "integer", "number of GPUs"},
    {"gpu_milli", "integer", "of a share: thousandths of a GPU"},
    {"mig_profile", "text", "of a slice: its profile"},
    {"mig_start", "integer", "where its slice begins"},
    {"gpu_memory_mb", "integer", "memory of all its GPUs together"},
    {"gpu_model", "text", "model that it asks for"},
    {"node_labels", "[text]", "labels that its nodes must have"},
    {"without_labels", "[text]", "labels that its nodes must not have"},
    {"exclusive", "boolean", "it has its nodes to itself"},
    {"gpu_layout", "text", "how its GPUs lie"},
    {"gpu_ids", "[text]", "the GPUs that it asks for"},
    {"gpu_bandwidth_gbs", "integer", "least bandwidth between its GPUs"},
    {"cpu_cores", "number", "CPU cores"},
    {"memory_mb", "integer", "memory"},
    {"image", "text", "container image"},
    {"user", "text", "as whom it runs, or who submitted it"},
    {"held", "boolean", "it does not start until it is released"},
    {"begin_at", "time", "it does not start before"},
    {"deadline", "time", "it should have ended by then"},
    {"dependencies", "[text]", "jobs that it waits for"},
    {"unmet_dependencies", "[text]", "those that it still waits for"},
    {"retry_on", "[text]", "causes after which it is tried again"},
    {"array_id", "text", "of an element: its array"},
    {"array_index", "integer", "of an element: its index"},
    {"array", "jobs.Array", "of an array: its elements"},
    {"command", "[text]", "the command"},
    {"args", "[text]", "its arguments"},
    {"script", "text", "the script"},
    {"labels", "{text}", "its labels"},
    {"gang_scheduling", "boolean", "all its parts start together"},
    {"checkpoint_enabled", "boolean", "it saves its state when it is told to stop"},
    {"allocated_gpus", "[text]", "the GPUs that it has"},
    {"node_name", "text", "the node that it runs on"},
    {"parts", "[jobs.Part]", "of a gang: its parts"},
    {"domain", "text", "within what its members lie together"},
    {"domain_required", "boolean", "it waits until they can"},
    {"on_node_loss", "text", "`continue`: it goes on without members that are lost"},
    {"members", "[jobs.Member]", "of a gang: its members"},
    {"queue_position", "integer", "place among those that wait; 0: it does not wait"},
    {"estimated_wait", "text", "how long it will wait, such as `12s`"},
    {"estimated_duration", "integer", "its time limit in nanoseconds"},
    {"max_runtime_seconds", "integer", "its time limit"},
    {"retries", "integer", "tries after a failure that are left to it"},
    {"submitted_at", "time?", "when it was submitted"},
    {"scheduled_at", "time?", "when it got its resources"},
    {"started_at", "time?", "when it started"},
    {"completed_at", "time?", "when it ended"},
    {"exit_code", "integer?", "exit code of its last attempt"},
    {"signal", "integer", "signal that ended its last attempt; 0: none"},
    {"attempts", "integer", "attempts so far"},
    {"preempted_count", "integer", "how often it was preempted"},
    {"work_class", "text", "`online` or `batch`"},
    {"usage", "jobs.Usage", "what its last attempt used"},
    {"submitted_by", "text", "who submitted it"},
    {"owner", "text", "whose it is"},
    {"warnings", "[jobs.Warning]", "what the watchdog finds"}};

std::vector<FieldDoc> job_fields() {
  std::vector<FieldDoc> fields = kJobFields;
  for (const JobRow& row : job_rows()) {
    if (!row.shown) continue;
    const pb::FieldDescriptor& field = *v1::JobSpec::descriptor()->FindFieldByNumber(row.number);
    const bool is_text = field.cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING;
    const bool is_flag = field.cpp_type() == pb::FieldDescriptor::CPPTYPE_BOOL;
    fields.push_back({.name = row.door.empty() ? row.name : row.door,
                      .type = is_text   ? "text"
                              : is_flag ? "boolean"
                                        : "number",
                      .meaning = row.meaning});
  }
  return fields;
}

std::vector<SchemaDoc> job_schemas() {
  std::vector<FieldDoc> one = job_fields(), listed = job_fields();
  one.insert(one.begin(), {"job_id", "text", "`job-<digits>`"});
  listed.insert(listed.begin(), {"id", "text", "`job-<digits>`"});
  return {{"jobs.Job", std::move(one)},
          {"jobs.ListedJob", std::move(listed)},
          {"jobs.Jobs",
           {{"jobs", "[jobs.ListedJob]", "this page"},
            {"total", "integer", "all that match"},
            {"next_page_token", "text", "for the next page"}}},
          {"jobs.Array",
           {{"indexes", "text", "as it was asked for"},
            {"unexpanded", "integer", "elements that are not jobs yet"},
            {"count", "integer", "all elements"},
            {"waiting", "integer"},
            {"running", "integer"},
            {"completed", "integer"},
            {"failed", "integer"},
            {"cancelled", "integer"}}},
          {"jobs.Part",
           {{"members", "integer", "how many such"},
            {"members_max", "integer", "at most"},
            {"gpu_count", "integer"},
            {"gpu_milli", "integer"},
            {"gpu_memory_mb", "integer"},
            {"gpu_model", "text"},
            {"cpu_cores", "number"},
            {"memory_mb", "integer"}}},
          {"jobs.Member",
           {{"member", "integer", "its rank"},
            {"part", "integer"},
            {"node_name", "text"},
            {"state", "text"},
            {"allocated_gpus", "[text]"}}},
          {"jobs.Usage",
           {{"peak_memory_bytes", "integer"},
            {"peak_memory_of", "text", "what that is the peak of"},
            {"cpu_ms", "integer"},
            {"gpu_use_permille", "integer"},
            {"peak_gpu_memory_mb", "integer"},
            {"members_unknown", "integer", "members that nobody measured"}}},
          {"jobs.Warning", {{"kind", "text"}, {"message", "text"}, {"since", "time?"}}},
          {"jobs.Submitted",
           {{"job_id", "text", "the new job"},
            {"status", "text", "`submitted`"},
            {"message", "text"},
            {"queue_position", "integer", "place among those that wait"},
            {"estimated_wait", "text"},
            {"ignored", "[text]", "fields of the request that nobody knows"}}}};
}

std::vector<SchemaDoc> other_schemas() {
  return {{"jobs.Message", {{"message", "text", "what was done"}}},
          {"jobs.Health",
           {{"status", "text", "`healthy`, `degraded` or `unhealthy`; `ok` at a port of allocations"},
            {"version", "text"},
            {"timestamp", "any", "now; at a port of tasks of agents in Unix seconds"},
            {"token_file", "text", "where its token is; told on its own machine alone"},
            {"concerns", "[text]", "what is degraded"},
            {"error", "text", "why it does not serve"},
            {"code", "text", "the same as a word"}}},
          {"jobs.Tenants", {{"tenants", "[jobs.Tenant]"}, {"total", "integer"}}},
          {"jobs.Nodes", {{"nodes", "[jobs.Node]"}, {"total", "integer"}}},
          {"jobs.Condition",
           {{.name = "condition",
             .type = "text",
             .meaning = "`ok`, or `unhealthy`: it gets no new jobs",
             .words = "ok unhealthy",
             .required = true},
            {.name = "detail", .type = "text?", .meaning = "why", .pattern = kPrintable, .most = 1'024},
            {.name = "by",
             .type = "text?",
             .meaning = "who says so",
             .pattern = kPrintable,
             .most = limits::kNameBytesMax}},
           true},
          {"jobs.Cluster",
           {{"total_nodes", "integer"},
            {"online_nodes", "integer"},
            {"total_gpus", "integer"},
            {"available_gpus", "integer"},
            {"total_jobs", "integer"},
            {"running_jobs", "integer"},
            {"pending_jobs", "integer"},
            {"sequence", "integer", "how many changes there have been; watches are resumed by it"},
            {"avg_gpu_utilization", "number"}}}};
}

const FieldDoc kWait{"wait", "text",
                     "Wait until the job is final, but at most this long, such as 30s; at most 10m.",
                     kWaitSpan};

const std::vector<CallDoc> kJobCalls = {
    {kPost,
     "api/v1/jobs",
     "jobs_submit",
     "Submits a job.",
     {},
     "jobs.JobRequest",
     false,
     201,
     "jobs.Submitted",
     {},
     true},
    {kPost,
     "api/v1/jobs:plan",
     "jobs_plan",
     "Predicts the outcome of a submission, without submitting it.",
     {},
     "jobs.JobRequest",
     false,
     200,
     "PlanResponse"},
    {kGet,
     "api/v1/jobs",
     "jobs_list",
     "Lists jobs, newest first.",
     {kOfTenant,
      kState,
      {.name = "limit",
       .type = "integer",
       .meaning = "Maximum number: 50 if omitted, at most 1000.",
       .most = 1e15},
      {.name = "offset", .type = "integer", .meaning = "How many to leave out.", .most = 1e12},
      {"page_token", "text", "The next_page_token of the page before; without offset.",
       "^job-[1-9][0-9]{0,17}$"}},
     {},
     false,
     200,
     "jobs.Jobs"},
    {kGet,
     "api/v1/jobs/{job_id}",
     "jobs_get",
     "Returns one job.",
     {kTenant, kWait},
     {},
     false,
     200,
     "jobs.Job"},
    {kDelete,
     "api/v1/jobs/{job_id}",
     "jobs_cancel",
     "Cancels a waiting job, or stops a running one.",
     {kTenant},
     {},
     false,
     200,
     "jobs.Message"},
    {kGet,
     "api/v1/jobs/{job_id}/explain",
     "jobs_explain",
     "Explains why a job waits, and which events could let it start.",
     {kTenant},
     {},
     false,
     200,
     "Explanation"},
    {kGet,
     "api/v1/jobs/{job_id}/logs",
     "jobs_read_log",
     "Reads an attempt's output; the parameters are those of /v1/jobs/{job_id}/log.",
     {kTenant,
      {"stream", "text", "stdout (the default) or stderr.", {}, "stdout stderr"},
      {.name = "attempt", .type = "integer", .meaning = "The latest if omitted.", .most = UINT32_MAX},
      {.name = "member", .type = "integer", .meaning = "Of a gang: its rank.", .most = limits::kMembersMax},
      {.name = "offset", .type = "integer", .meaning = "Where to begin, in bytes.", .most = 1e15},
      {.name = "tail_lines",
       .type = "integer",
       .meaning = "Begin this many lines before the end.",
       .most = 1e4},
      {"since", "text", "Begin with what was written since this time, or within this duration."},
      {"grep", "text", "Only lines that contain this text."},
      {"timestamps", "boolean", "Prefix each line with the latest time at which it can have been written."},
      {"follow", "boolean", "Stream the output until the attempt ends."},
      {"format", "text", "bytes (the default), or json.", {}, "bytes json"}},
     {},
     false,
     200,
     {},
     "application/octet-stream application/x-ndjson"},
    {kGet,
     "api/v1/ws",
     "jobs_watch",
     "A WebSocket that sends each job and node that changes.",
     {kOfTenant,
      kState,
      {"nodes", "boolean", "Also changes of nodes: yes if omitted."},
      {.name = "after_sequence",
       .type = "integer",
       .meaning = "Resumes a watch: sends what changed after this number.",
       .most = 1e18}},
     {},
     false,
     101}};

const std::vector<CallDoc> kOtherCalls = {
    {kGet,
     "health",
     "health",
     "Says whether the scheduler serves; without a credential, too.",
     {},
     {},
     false,
     200,
     "jobs.Health"},
    {kGet,
     "api/v1/health",
     "jobs_health",
     "Says whether the scheduler serves; without a credential, too.",
     {},
     {},
     false,
     200,
     "jobs.Health"},
    {kPost,
     "api/v1/tenants",
     "jobs_create_tenant",
     "Creates a tenant; the same name again makes another one.",
     {{"unique_name", "boolean", "The same name again is refused."}},
     "jobs.NewTenant",
     false,
     201,
     "jobs.Tenant",
     {},
     true},
    {kGet, "api/v1/tenants", "jobs_list_tenants", "Lists tenants.", {}, {}, false, 200, "jobs.Tenants"},
    {kGet,
     "api/v1/tenants/{tenant_id}",
     "jobs_get_tenant",
     "Returns a tenant, by id or name.",
     {},
     {},
     false,
     200,
     "jobs.Tenant"},
    {kPut,
     "api/v1/tenants/{tenant_id}",
     "jobs_update_tenant",
     "Changes the given settings of a tenant; null removes a limit.",
     {},
     "jobs.TenantChange",
     false,
     200,
     "jobs.Tenant"},
    {kDelete,
     "api/v1/tenants/{tenant_id}",
     "jobs_delete_tenant",
     "Deletes a tenant that has no unfinished jobs and no tenants below it.",
     {},
     {},
     false,
     200,
     "jobs.Message"},
    {kGet,
     "api/v1/cluster/status",
     "jobs_cluster_status",
     "Returns the cluster's totals.",
     {},
     {},
     false,
     200,
     "jobs.Cluster"},
    {kGet, "api/v1/nodes", "jobs_list_nodes", "Lists nodes by name.", {}, {}, false, 200, "jobs.Nodes"},
    {kPost,
     "api/v1/nodes/{node_name}/confirm-dead",
     "jobs_confirm_node_dead",
     "Declares a lost node dead: nothing runs on it any more, and its attempts are retried elsewhere.",
     {},
     {},
     false,
     200,
     "jobs.Node"},
    {kPost,
     "api/v1/nodes/{node_name}/gpus/{index}/condition",
     "jobs_set_gpu_condition",
     "Quarantines a GPU, or ends its quarantine; running jobs continue.",
     {},
     "jobs.Condition",
     false,
     200,
     "jobs.Node"}};

}  // namespace

DoorDoc jobs_door_doc() {
  DoorDoc door{.tag = "jobs", .meaning = "The jobs door: docs/reference/rest.md."};
  door.calls = kJobCalls;
  door.calls.insert(door.calls.end(), kOtherCalls.begin(), kOtherCalls.end());
  door.schemas = {job_request(),
                  tenant_request("jobs.NewTenant", true),
                  tenant_request("jobs.TenantChange", false),
                  tenant(),
                  shown_of("jobs.Node", *v1::Node::descriptor(), "[jobs.Gpu]"),
                  shown_of("jobs.Gpu", *v1::NodeDevice::descriptor(), "[jobs.Slice]"),
                  shown_of("jobs.Slice", *v1::MigSlice::descriptor(), "any")};
  for (SchemaDoc& schema : job_schemas()) door.schemas.push_back(std::move(schema));
  for (SchemaDoc& schema : other_schemas()) door.schemas.push_back(std::move(schema));
  return door;
}

}  // namespace gpusched::api
