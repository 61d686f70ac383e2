#include "api/doors/jobs/views_json.h"

#include <algorithm>

#include "api/contract/json_writer.h"
#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_views.h"
#include "api/fields/flow_fields.h"
#include "api/fields/job_rows.h"
#include "api/fields/node_rows.h"
#include "api/fields/place_words.h"
#include "api/fields/tenants/tenant_rows.h"
#include "gpusched/v1/scheduler.pb.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

/// Cores are whole numbers wherever they are whole.
void cores(JsonWriter& json, std::string_view name, int64_t milli) {
  if (milli % 1'000 == 0) {
    json.field(name, milli / 1'000);
  } else {
    json.field(name, static_cast<double>(milli) / 1'000.0);
  }
}

void words(JsonWriter& json, std::string_view name, const auto& list) {
  json.key(name).begin_array();
  for (const auto& word : list) json.value(std::string_view(word));
  json.end_array();
}

void place_fields(JsonWriter& json, const PlacementFields& place) {
  if (!place.node_labels.empty()) words(json, "node_labels", place.node_labels);
  if (!place.without_labels.empty()) words(json, "without_labels", place.without_labels);
  if (place.exclusive) json.field("exclusive", true);
  if (!place.gpu_layout.empty()) json.field("gpu_layout", place.gpu_layout);
  if (!place.gpu_ids.empty()) words(json, "gpu_ids", place.gpu_ids);
  if (place.gpu_bandwidth_gbs > 0) json.field("gpu_bandwidth_gbs", place.gpu_bandwidth_gbs);
}

void flow_fields(JsonWriter& json, const JobView& job) {
  if (job.begin_at.valid()) json.field("begin_at", job.begin_at);
  if (job.deadline.valid()) json.field("deadline", job.deadline);
  if (!job.dependencies.empty()) {
    std::vector<std::string> all;
    std::vector<std::string> unmet;
    for (const JobDependency& one : job.dependencies) {
      all.push_back(dependency_text(one));
      if (one.verdict != JobDependency::Verdict::kMet) unmet.push_back(dependency_text(one));
    }
    words(json, "dependencies", all);
    words(json, "unmet_dependencies", unmet);
  }
  if (job.retry_causes != 0) words(json, "retry_on", retry_on_words(job.retry_causes, job.retry_exit_codes));
  if (job.array.valid()) json.field("array_id", job_name(job.array));
  if (job.array_index) json.field("array_index", *job.array_index);
  if (!job.array_view) return;
  const ArrayView& array = *job.array_view;
  json.key("array").begin_object();
  json.field("indexes", array.indexes).field("unexpanded", array.unexpanded);
  json.field("count", array.count).field("waiting", array.waiting).field("running", array.running);
  json.field("completed", array.completed).field("failed", array.failed);
  json.field("cancelled", array.cancelled).end_object();
}

void gang_fields(JsonWriter& json, const JobView& job) {
  json.key("parts").begin_array();
  for (const JobPart& part : job.parts) {
    json.begin_object().field("members", part.members);
    if (part.members_max > 0) json.field("members_max", part.members_max);
    json.field("gpu_count", part.gpu_count);
    if (part.gpu_milli > 0) json.field("gpu_milli", part.gpu_milli);
    json.field("gpu_memory_mb", part.gpu_memory_mb).field("gpu_model", part.gpu_model);
    cores(json, "cpu_cores", part.cpu_milli);
    json.field("memory_mb", part.memory_mb).end_object();
  }
  json.end_array();
  if (job.domain != DomainLevel::kAny) json.field("domain", to_string(job.domain));
  if (job.domain_required) json.field("domain_required", true);
  if (job.tolerates_node_loss) json.field("on_node_loss", "continue");
  if (job.members.empty()) return;
  json.key("members").begin_array();
  for (std::size_t rank = 0; rank < job.members.size(); ++rank) {
    const JobMember& member = job.members[rank];
    json.begin_object().field("member", static_cast<int64_t>(rank)).field("part", member.part);
    json.field("node_name", member.node_name);
    if (!member.state.empty()) json.field("state", member.state);
    words(json, "allocated_gpus", member.gpus);
    json.end_object();
  }
  json.end_array();
}

struct ShownField {
  const JobRow* row;
  const google::protobuf::FieldDescriptor* field;
};

/// The fields of a specification that are shown of those who gave them.
const std::vector<ShownField>& shown_fields() {
  static const std::vector<ShownField> all = [] {
    std::vector<ShownField> found;
    for (const JobRow& row : job_rows()) {
      if (row.shown) found.push_back({&row, v1::JobSpec::descriptor()->FindFieldByNumber(row.number)});
    }
    return found;
  }();
  return all;
}

/// Those that this one gave, in the jobs door's units. Most give none, which costs less to see than to ask
/// for each.
void given_fields(JsonWriter& json, std::string_view packed, const v1::JobSpec& spec) {
  const SpecNumbers given = spec_numbers(packed);
  if (std::none_of(shown_fields().begin(), shown_fields().end(), [&given](const ShownField& shown) {
        return given[static_cast<std::size_t>(shown.row->number)];
      }))
    return;
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *spec.GetReflection();
  for (const auto& [row, field] : shown_fields()) {
    if (!reflection.HasField(spec, field)) continue;
    const std::string_view name = row->door.empty() ? row->name : row->door;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      json.field(name, reflection.GetString(spec, field));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      json.field(name, reflection.GetBool(spec, field));
    } else {
      CHECK(field->cpp_type() == FieldDescriptor::CPPTYPE_INT64);
      const auto number = static_cast<double>(reflection.GetInt64(spec, field));
      json.field(name, number / static_cast<double>(scale_of(row->unit)));
    }
  }
}

/// In the order of their names.
void write_labels(JsonWriter& json, const v1::JobSpec& spec) {
  json.key("labels").begin_object();
  if (spec.labels().size() == 1) {
    const auto& [name, value] = *spec.labels().begin();
    json.text_key(name).value(value);
  } else if (!spec.labels().empty()) {
    std::vector<std::pair<std::string_view, std::string_view>> labels(spec.labels().begin(),
                                                                      spec.labels().end());
    std::sort(labels.begin(), labels.end());
    for (const auto& [name, value] : labels) json.text_key(name).value(value);
  }
  json.end_object();
}

/// Writes the use by its last attempt; nothing where no node measured it.
void usage_fields(JsonWriter& json, const UsageView& usage) {
  if (!usage.is_known()) return;
  json.key("usage").begin_object();
  if (usage.peak_memory_bytes) json.field("peak_memory_bytes", *usage.peak_memory_bytes);
  if (usage.peak_memory_bytes) json.field("peak_memory_of", usage.peak_memory_of);
  if (usage.cpu_ms) json.field("cpu_ms", *usage.cpu_ms);
  if (usage.gpu_use_permille) json.field("gpu_use_permille", *usage.gpu_use_permille);
  if (usage.peak_gpu_memory_mb) json.field("peak_gpu_memory_mb", *usage.peak_gpu_memory_mb);
  if (usage.members_unknown > 0) json.field("members_unknown", usage.members_unknown);
  json.end_object();
}

void job_fields(JsonWriter& json, const JobView& job, std::string_view id_field) {
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) spec.Clear();
  json.field(id_field, job_name(job.id));
  json.field("tenant_id", tenant_name(job.tenant));
  json.field("name", job.name.empty() ? spec.name() : job.name);
  json.field("state", to_string(job.state));
  json.field("status", to_string(job.state));
  json.field("final", is_final(job.state));
  json.field("reason", job.wait_code.empty() ? to_string(job.reason) : std::string_view(job.wait_code));
  json.field("cause", to_string(job.cause));
  json.field("message", job.message);
  json.field("priority", job.priority);
  json.field("gpu_count", job.gpu_count);
  if (job.gpu_milli > 0) json.field("gpu_milli", job.gpu_milli);
  if (!job.mig_profile.empty()) json.field("mig_profile", job.mig_profile);
  if (job.mig_start) json.field("mig_start", *job.mig_start);
  json.field("gpu_memory_mb", job.gpu_memory_mb);
  json.field("gpu_model", job.gpu_model);
  if (!job.place.empty()) place_fields(json, words_of(job.place.front()));
  cores(json, "cpu_cores", job.cpu_milli);
  json.field("memory_mb", job.memory_mb);
  json.field("image", spec.image());
  json.field("user", spec.user().empty() ? spec.submitter() : spec.user());
  json.field("held", job.held);
  flow_fields(json, job);
  words(json, "command", spec.command());
  words(json, "args", spec.args());
  json.field("script", spec.script());
  write_labels(json, spec);
  json.field("gang_scheduling", spec.gang_scheduling());
  json.field("checkpoint_enabled", spec.checkpoint_enabled());
  given_fields(json, job.spec.view(), spec);
  words(json, "allocated_gpus", job.gpus);
  json.field("node_name", job.node_name);
  if (!job.parts.empty()) gang_fields(json, job);
  json.field("queue_position", job.queue_position);
  if (job.estimated_wait) json.field("estimated_wait", duration_text(*job.estimated_wait));
  json.field("estimated_duration", job.max_runtime.ns);
  json.field("max_runtime_seconds", job.max_runtime.ns / 1'000'000'000);
  json.field("retries", job.exit_code_retries);
  json.field("submitted_at", job.submitted_at);
  json.field("scheduled_at", job.scheduled_at);
  json.field("started_at", job.started_at);
  json.field("completed_at", job.completed_at);
  if (job.exit_code) {
    json.field("exit_code", *job.exit_code);
  } else {
    json.key("exit_code").null();
  }
  json.field("signal", job.signal);
  json.field("attempts", job.attempts);
  json.field("preempted_count", job.preempted_count);
  if (job.work != WorkClass::kUnset) json.field("work_class", to_string(job.work));
  usage_fields(json, job.usage);
  if (!job.submitted_by.empty()) json.field("submitted_by", job.submitted_by);
  if (!job.owner.empty()) json.field("owner", job.owner);
  if (job.watch == WatchdogFinding::kNone) return;
  json.key("warnings").begin_array().begin_object();
  json.field("kind", to_string(job.watch)).field("message", job.watch_detail);
  json.field("since", job.watch_since);
  json.end_object().end_array();
}

}  // namespace

std::string submitted_json(const Submitted& submitted, std::span<const std::string> ignored,
                           std::optional<Duration> wait) {
  std::string out;
  out.reserve(160);
  out.append(R"({"job_id":"job-)").append(std::to_string(submitted.first_job.value));
  out.append(R"(","status":"submitted","message":"Job submitted successfully","queue_position":)");
  out.append(std::to_string(submitted.queue_position));
  if (wait) out.append(R"(,"estimated_wait":")").append(duration_text(*wait)) += '"';
  if (!ignored.empty()) {
    out.append(R"(,"ignored":[)");
    for (std::size_t i = 0; i < ignored.size(); ++i) {
      if (i > 0) out += ',';
      append_json_text(out, ignored[i]);
    }
    out += ']';
  }
  return out += '}';
}

std::string job_json(const JobView& job) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  job_fields(json, job, "job_id");
  json.end_object();
  return out;
}

std::string listed_job_json(const JobView& job) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  job_fields(json, job, "id");
  json.end_object();
  return out;
}

std::string job_page_json(const JobPage& page) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("jobs").begin_array();
  for (const JobView& job : page.jobs) {
    json.begin_object();
    job_fields(json, job, "id");
    json.end_object();
  }
  json.end_array().field("total", page.total.value_or(0));
  if (page.next.valid()) json.field("next_page_token", job_name(page.next));
  json.end_object();
  return out;
}

std::string explain_json(const ExplainView& explain) {
  v1::Explanation message;
  write_explanation(explain, message);
  return native_json(message);
}

std::string plan_json(const PlanView& plan) {
  v1::PlanResponse message;
  write_plan(plan, message);
  return native_json(message);
}

std::string tenant_json(const TenantView& tenant) {
  std::string out;
  JsonWriter json(out);
  write_door_tenant(tenant, json);
  return out;
}

std::string tenants_json(const std::vector<TenantView>& tenants) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("tenants").begin_array();
  for (const TenantView& tenant : tenants) write_door_tenant(tenant, json);
  json.end_array().field("total", tenants.size()).end_object();
  return out;
}

std::string node_json(const NodeView& node) {
  std::string out;
  JsonWriter json(out);
  write_door_node(node, json);
  return out;
}

std::string nodes_json(const std::vector<NodeView>& nodes) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("nodes").begin_array();
  for (const NodeView& node : nodes) write_door_node(node, json);
  json.end_array().field("total", nodes.size()).end_object();
  return out;
}

std::string cluster_json(const ClusterView& cluster) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("total_nodes", cluster.total_nodes).field("online_nodes", cluster.online_nodes);
  json.field("total_gpus", cluster.total_gpus).field("available_gpus", cluster.available_gpus);
  json.field("total_jobs", cluster.total_jobs).field("running_jobs", cluster.running_jobs);
  json.field("pending_jobs", cluster.pending_jobs).field("sequence", cluster.sequence);
  json.field("avg_gpu_utilization", cluster.average_gpu_utilization).end_object();
  return out;
}

namespace {

const char* status_word(const HealthView& health) {
  if (!health.serving) return "unhealthy";
  return health.concerns.empty() ? "healthy" : "degraded";
}

}  // namespace

std::string health_word_json(const HealthView& health) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("status", status_word(health)).end_object();
  return out;
}

std::string health_json(const HealthView& health, std::string_view version, Time now,
                        std::string_view token_file) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("status", status_word(health)).field("version", version);
  json.field("timestamp", now);
  if (!token_file.empty()) json.field("token_file", token_file);
  if (!health.concerns.empty()) {
    json.key("concerns").begin_array();
    for (const std::string& concern : health.concerns) json.value(concern);
    json.end_array();
  }
  if (!health.serving) json.field("error", health.reason).field("code", row_of(health.kind).code);
  json.end_object();
  return out;
}

}  // namespace gpusched::api
