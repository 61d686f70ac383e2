#include "api/doors/tasks/tasks_json.h"

#include <cmath>

#include "api/contract/json_writer.h"
#include "api/contract/names.h"
#include "api/doors/json_fields.h"
#include "api/fields/checks.h"
#include "api/fields/job_rules.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/text/packed_field.h"
#include "base/text/shell_words.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kHigh = "high", kLow = "low";

ApiError bad(std::string_view field, std::string sentence) {
  return {ErrorKind::kInvalidArgument, std::move(sentence), std::string(field)};
}

std::string_view status_of(JobState state) {
  switch (state) {
    case JobState::kPending:
    case JobState::kScheduled:
    case JobState::kPreempted:
      return "pending";
    case JobState::kRunning:
      return "running";
    case JobState::kCompleted:
      return "success";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  UNREACHABLE();
}

/// Field of a packed JobSpec, reserved there: the line of a command as its client sent it, where the words
/// that it was parted into do not say that. Nodes and other doors do not read it.
constexpr uint64_t kCommandLine = 67;

void keep_line(std::string_view line, std::string& packed) {
  ByteWriter out(packed);
  out.varint(kCommandLine << 3 | 2);
  out.bytes(line);
}

/// It lives as long as the bytes.
std::optional<std::string_view> kept_line(std::string_view packed) {
  ByteReader reader(packed);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (!reader.ok() || !read_field(reader, tag, bytes)) return std::nullopt;
    if (tag >> 3 == kCommandLine) return bytes;
  }
  return std::nullopt;
}

/// The line as it was sent; of a job that came by another door one line, as a shell would take it.
std::string command_of(std::string_view packed, const v1::JobSpec& spec) {
  if (const std::optional<std::string_view> line = kept_line(packed)) return std::string(*line);
  if (!spec.script().empty()) return spec.script();
  std::vector<std::string> words(spec.command().begin(), spec.command().end());
  words.insert(words.end(), spec.args().begin(), spec.args().end());
  return shell_line(words);
}

/// Null in the place of a text that is not there.
void write_text(JsonWriter& json, std::string_view name, std::string_view text) {
  json.key(name);
  if (text.empty()) {
    json.null();
  } else {
    json.value(text);
  }
}

void write_task(JsonWriter& json, const JobView& job) {
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) spec.Clear();
  const std::string id = job_name(job.id);
  json.begin_object().field("task_id", id).field("id", id);
  json.field("priority", job.work == WorkClass::kOnline ? kHigh : kLow);
  json.field("gpu_count", job.gpu_count);
  write_text(json, "gpu_model", job.gpu_model);
  write_text(json, "command", command_of(job.spec.view(), spec));
  json.key("env").begin_object();
  const std::map<std::string_view, std::string_view> sorted(spec.environment().begin(),
                                                            spec.environment().end());
  for (const auto& [name, value] : sorted) json.text_key(name).value(value);
  json.end_object();
  json.field("status", status_of(job.state));
  json.key("assigned_gpus").begin_array();
  for (const std::string& gpu : job.gpus) json.value(std::string_view(gpu));
  json.end_array();
  json.field("created_at", job.submitted_at);
  json.field("started_at", job.started_at);
  json.field("finished_at", job.completed_at);
  write_text(json, "error", job.state == JobState::kFailed ? job.message : "");
  write_text(json, "reason", job.wait_code);
  write_text(json, "message", job.message);
  if (job.exit_code) json.field("exit_code", *job.exit_code);
  json.end_object();
}

std::string_view status_of(const NodeView& node, const DeviceView& device) {
  if (node.contact != NodeState::kReady || device.state == "quarantined" || device.condition == "missing" ||
      device.condition == "faulty" || device.condition == "unhealthy")
    return "offline";
  return device.state == "free" ? "idle" : "busy";
}

}  // namespace

Answer<SubmitRequest> parse_task(std::string_view body, bool containers_possible) {
  std::optional<std::string> priority, command, tenant;
  JobFields job;
  const std::vector<JsonField> fields = {
      {"priority", &priority},       {"gpu_count", &job.gpu_count},
      {"gpu_model", &job.gpu_model}, {"command", &command, "; it is one line of text"},
      {"env", &job.environment},     {"name", &job.name},
      {"tenant_id", &tenant}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  if (!priority || (*priority != kHigh && *priority != kLow))
    return bad("priority", "priority must be \"high\" (online work) or \"low\" (batch work)");
  if (!job.gpu_count || *job.gpu_count <= 0) return bad("gpu_count", "gpu_count must be 1 or more");
  if (!command) return bad("command", "command is missing: the line to run");
  Result<std::vector<std::string>> words = shell_words(*command);
  if (!words) return bad("command", "command: " + words.error().message);
  if (words->empty()) return bad("command", "command is empty");
  if (tenant) {
    if (auto problem = check_length("tenant_id", *tenant, limits::kNameBytesMax)) return std::move(*problem);
  }
  const bool is_plain = shell_line(*words) == *command;
  job.command = std::move(*words);
  job.work_class = std::string(to_string(*priority == kHigh ? WorkClass::kOnline : WorkClass::kBatch));
  Answer<JobRequest> checked = check_job(std::move(job), containers_possible);
  if (!checked) return checked.error();
  SubmitRequest request{.tenant = std::move(tenant).value_or("")};
  if (!is_plain) keep_line(*command, checked->spec);
  if (checked->spec.size() > limits::kSpecBytesMax)
    return bad("command", "command is too long: it is kept as it was sent and in words, in 1 MiB together");
  request.jobs.push_back(std::move(*checked));
  return request;
}

Answer<int64_t> parse_quota(std::string_view body) {
  std::optional<double> online;
  const std::vector<JsonField> fields = {{"online_percent", &online}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  if (!online || !(*online >= 0 && *online <= 1))
    return bad("online_percent", "online_percent must be a number from 0 to 1, such as 0.65");
  return static_cast<int64_t>(std::llround(*online * 1000));
}

std::vector<JobState> states_of_status(std::string_view status) {
  using enum JobState;
  std::vector<JobState> states;
  for (const JobState state : {kPending, kScheduled, kRunning, kCompleted, kFailed, kCancelled, kPreempted}) {
    if (status_of(state) == status) states.push_back(state);
  }
  return states;
}

std::string submitted_task_json(const JobView& job) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("task_id", job_name(job.id)).field("status", "pending");
  json.field("created_at", job.submitted_at).end_object();
  return out;
}

std::string task_json(const JobView& job) {
  std::string out;
  JsonWriter json(out);
  write_task(json, job);
  return out;
}

std::string tasks_json(const std::vector<JobView>& jobs, int64_t total) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("tasks").begin_array();
  for (const JobView& job : jobs) write_task(json, job);
  json.end_array().field("total", total).end_object();
  return out;
}

std::string gpus_json(const std::vector<NodeView>& nodes, Time now) {
  int64_t idle = 0, busy = 0, offline = 0;
  for (const NodeView& node : nodes) {
    for (const DeviceView& device : node.devices) {
      const std::string_view status = status_of(node, device);
      (status == "idle" ? idle : status == "busy" ? busy : offline) += 1;
    }
  }
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("total", idle + busy + offline).field("idle", idle).field("busy", busy);
  json.field("offline", offline).key("gpus").begin_array();
  for (const NodeView& node : nodes) {
    for (const DeviceView& device : node.devices) {
      const JobId job =
          device.held_by.valid() || device.shared_by.empty() ? device.held_by : device.shared_by.front();
      json.begin_object().field("id", node.name + "-gpu-" + std::to_string(device.index));
      json.field("node_id", node.name).field("device_index", device.index).field("model", device.model);
      json.field("memory", device.memory_mb).field("status", status_of(node, device));
      write_text(json, "current_task", job.valid() ? job_name(job) : "");
      json.field("updated_at", now).end_object();
    }
  }
  json.end_array().end_object();
  return out;
}

std::string quota_json(const PoolsView& pools) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("total_gpus", pools.total_gpus);
  const int64_t free = std::max<int64_t>(pools.total_gpus - pools.online.used - pools.batch.used, 0);
  const auto write = [&](std::string_view name, const PoolsView::Pool& pool) {
    const int64_t left = pools.on ? std::max<int64_t>(pool.quota - pool.used, 0) : free;
    json.key(name).begin_object().field("quota", pool.quota).field("used", pool.used);
    json.field("available", left).end_object();
  };
  write("online", pools.online);
  write("batch", pools.batch);
  json.end_object();
  return out;
}

}  // namespace gpusched::api
