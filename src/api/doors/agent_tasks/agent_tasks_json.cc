#include "api/doors/agent_tasks/agent_tasks_json.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "api/contract/json_writer.h"
#include "api/contract/spec_peek.h"
#include "api/doors/agent_tasks/task_messages.h"
#include "api/doors/agent_tasks/task_words.h"

namespace gpusched::api {
namespace {

void write_gpu(JsonWriter& json, const NodeView& node, const DeviceView& gpu) {
  const int64_t used = memory_taken(gpu);
  json.begin_object().field("gpu_id", gpu.gpu_id);
  json.field("memory_total_mb", gpu.memory_mb)
      .field("memory_used_mb", used)
      .field("memory_free_mb", gpu.memory_mb - used);
  json.field("compute_util_percent", gpu.utilization_percent);
  json.field("memory_util_percent", gpu.memory_mb > 0 ? used * 100 / gpu.memory_mb : 0);
  json.field("temperature_celsius", gpu.temperature_celsius);
  json.field("last_updated_unix", seconds_of(node.heard_at)).end_object();
}

/// The name in the contract of the type that the job's label says; of a specification that the caller may
/// not read none is known.
std::string_view type_of(std::string_view packed_spec) {
  if (packed_spec.empty()) return "TASK_TYPE_UNSPECIFIED";
  const std::string_view word = spec_label(packed_spec, kTaskTypeLabel).value_or("");
  if (word == "embedding") return "TASK_TYPE_EMBEDDING";
  if (word == "llm") return "TASK_TYPE_LLM";
  if (word == "diffusion") return "TASK_TYPE_DIFFUSION";
  return "TASK_TYPE_OTHER";
}

void write_tasks(JsonWriter& json, const std::vector<JobView>& jobs) {
  json.begin_array();
  for (const JobView& job : jobs) {
    if (job.name.empty()) continue;
    const std::string_view spec = job.spec.view();
    json.begin_object().field("id", std::string_view(job.name));
    json.field("user_id", spec_label(spec, kTaskUserLabel).value_or(""));
    json.field("type", type_of(spec)).end_object();
  }
  json.end_array();
}

}  // namespace

std::string health_json(Time now) {
  std::string out;
  JsonWriter(out).begin_object().field("status", "healthy").field("timestamp", seconds_of(now)).end_object();
  return out;
}

std::string gpu_metrics_json(const std::vector<NodeView>& nodes) {
  std::map<int32_t, std::pair<const NodeView*, const DeviceView*>> gpus;
  for (const NodeView& node : nodes)
    for (const DeviceView& device : node.devices) gpus.emplace(device.gpu_id, std::pair(&node, &device));
  std::string out;
  JsonWriter json(out);
  json.begin_array();
  for (const auto& [id, gpu] : gpus) write_gpu(json, *gpu.first, *gpu.second);
  json.end_array();
  return out;
}

std::string queue_json(const TaskIndex::Counts& counts, const std::vector<JobView>& pending,
                       const std::vector<JobView>& running) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("queue_size", counts.pending).field("running_count", counts.running);
  json.key("pending");
  write_tasks(json, pending);
  json.key("running");
  write_tasks(json, running);
  json.end_object();
  return out;
}

std::string task_metrics_json(const TaskIndex::Counts& counts, const std::string& gpus, Time now) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("timestamp", seconds_of(now));
  json.field("queue_size", counts.pending).field("running_tasks", counts.running);
  json.field("completed_tasks", counts.completed).field("failed_tasks", counts.failed);
  json.field("rejected_tasks", counts.refused).field("gpu_metrics", std::string_view(gpus)).end_object();
  return out;
}

}  // namespace gpusched::api
