#include "api/doors/agent_tasks/task_messages.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "api/contract/names.h"
#include "api/doors/agent_tasks/task_words.h"
#include "api/fields/checks.h"
#include "api/fields/job_message.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/net/base64.h"
#include "base/text/task_payload.h"
#include "base/text/task_worker.h"

namespace gpusched::api {
namespace {

/// GPU share of a task that asks for no compute: a hundred of them are on a GPU if its memory is enough.
constexpr int32_t kSmallestMilli = 10;
constexpr int32_t kWholeMilli = 1'000;

int32_t percent_of(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<int32_t>(std::clamp<int64_t>(part * 100 / whole, 0, 100)) : 0;
}

/// The label of its kind, by which tokens may cost it (`admission.task_costs`), and of its setting.
const char* word_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kEmbedding:
      return "embedding";
    case TaskKind::kLlm:
      return "llm";
    case TaskKind::kDiffusion:
      return "diffusion";
    case TaskKind::kUnspecified:
    case TaskKind::kOther:
      return "other";
  }
  UNREACHABLE();
}

std::optional<ApiError> check_id(const char* field, const std::string& id) {
  if (id.size() > kTaskIdBytesMax) {
    return invalid(field, std::string(field) + " is longer than " + std::to_string(kTaskIdBytesMax) +
                              " bytes; shorten it");
  }
  const bool has_control = std::any_of(id.begin(), id.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
  });
  if (has_control)
    return invalid(field,
                   std::string(field) + " contains a control character, such as a line break; remove it");
  return std::nullopt;
}

std::optional<ApiError> check_amount(const char* field, int64_t amount) {
  if (amount >= 0 && amount <= limits::kMegabytesMax) return std::nullopt;
  return invalid(field, std::string(field) + " must be from 0 to " + std::to_string(limits::kMegabytesMax));
}

std::optional<ApiError> check_task(const algogpu::TaskRequest& message) {
  if (message.task_id().empty()) return invalid("task_id", "task_id is missing; choose one for each task");
  if (auto problem = check_id("task_id", message.task_id())) return problem;
  if (auto problem = check_id("user_id", message.user_id())) return problem;
  if (auto problem = check_amount("gpu_memory_required", message.gpu_memory_required())) return problem;
  if (auto problem = check_amount("gpu_compute_required", message.gpu_compute_required())) return problem;
  if (message.payload().size() > kTaskPayloadBytesMax) {
    return invalid("payload", "payload has " + std::to_string(message.payload().size()) +
                                  " bytes, and a task carries at most " +
                                  std::to_string(kTaskPayloadBytesMax) +
                                  "; put larger data where the worker can read it, and send its place");
  }
  return std::nullopt;
}

/// An older agent's worker would take the lack of a payload for an empty one.
constexpr const char* kNoBase64 = "!";

/// The payload is in the environment, where no other user sees it, and from there on the worker's input. The
/// operator's line stands on a line of its own, so that it may end with a comment.
std::string script_of(const std::string& command) {
  const std::string variable(kTaskPayloadVariable);
  return "command -v base64 > /dev/null || { echo 'base64 is not installed on this node' >&2; exit 127; }\n"
         "printf %s \"$" +
         variable + "\" | base64 -d | { unset " + variable + "\n" + command + "\n}";
}

/// The payload is the script's own input. Agents from before large payloads give it none, and it must not run
/// without.
std::string script_with_input(const std::string& command) {
  const std::string bytes(kTaskPayloadBytesVariable);
  return "[ -n \"$" + bytes +
         "\" ] || { echo 'the agent of this node is too old for a payload of this size: upgrade gpu-agent' "
         ">&2; "
         "exit 125; }\nunset " +
         bytes + ' ' + std::string(kTaskPayloadVariable) + '\n' + command;
}

/// For nodes whose agents call no endpoints themselves, and for what no worker can take. The URL has neither
/// blanks nor quotes (`parse_endpoint_url`).
std::string command_of(const Endpoint& endpoint) {
  return "command -v curl > /dev/null || { echo 'this node can call no endpoint: curl is not installed' >&2; "
         "exit 127; }\ncurl -gsSf --noproxy '*' --retry " +
         std::to_string(endpoint.retries) + " --retry-connrefused --max-time " +
         std::to_string((endpoint.timeout.ms() + 999) / 1'000) +
         " -H 'Content-Type: application/json' --data-binary @- '" + endpoint.url + "'";
}

/// The request for an agent with workers to run the task by; nothing: the job's own script runs.
std::optional<WorkerRequest> worker_request(const TaskWorkers& workers, std::size_t kind) {
  const Endpoint& endpoint = workers.endpoints[kind];
  if (endpoint.url.empty() && !workers.persistent[kind]) return std::nullopt;
  const int64_t at_once = workers.tasks_at_once[kind];
  WorkerRequest worker{.idle_ms = std::to_string(workers.idle_ms),
                       .tasks = at_once > 1 ? std::to_string(at_once) : std::string(),
                       .health_ms = std::to_string(workers.health_ms)};
  if (endpoint.url.empty()) {
    worker.command = workers.commands[kind];
  } else {
    worker.endpoint = to_text(endpoint);
  }
  return worker;
}

int32_t milli_of(int64_t tflops, const TaskWorkers& workers) {
  if (tflops == 0) return kSmallestMilli;
  if (tflops >= workers.gpu_tflops) return kWholeMilli - 1;  // Whole ones are not shared.
  return std::max(static_cast<int32_t>(tflops * kWholeMilli / workers.gpu_tflops), 1);
}

}  // namespace

TaskKind kind_of(algogpu::TaskType type) {
  switch (type) {
    case algogpu::TASK_TYPE_UNSPECIFIED:
      return TaskKind::kUnspecified;
    case algogpu::TASK_TYPE_EMBEDDING:
      return TaskKind::kEmbedding;
    case algogpu::TASK_TYPE_LLM:
      return TaskKind::kLlm;
    case algogpu::TASK_TYPE_DIFFUSION:
      return TaskKind::kDiffusion;
    default:  // Others, and those that later clients may know.
      return TaskKind::kOther;
  }
}

TaskContent content_of(const algogpu::TaskRequest& message) {
  std::string words;
  ByteWriter out(words);
  out.bytes(message.user_id());
  out.varint(static_cast<uint32_t>(message.task_type()));
  out.fixed64(static_cast<uint64_t>(message.gpu_memory_required()));
  out.fixed64(static_cast<uint64_t>(message.gpu_compute_required()));
  out.bytes(message.payload());
  std::array<unsigned char, 16> hash{};
  CHECK(crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(words.data()),
                           words.size(), nullptr, 0) == 0);
  ByteReader reader(std::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
  TaskContent content;
  content.high = reader.fixed64();
  content.low = reader.fixed64();
  return content;
}

Answer<SubmitRequest> read_task(const algogpu::TaskRequest& message, TaskContent content,
                                const TaskWorkers& workers, bool containers_possible) {
  if (auto problem = check_task(message)) return std::move(*problem);
  const TaskKind kind = kind_of(message.task_type());
  const std::string word = word_of(kind);
  const auto run_as = static_cast<std::size_t>(kind == TaskKind::kUnspecified ? TaskKind::kOther : kind);
  const Endpoint& endpoint = workers.endpoints[run_as];
  const std::string command = endpoint.url.empty() ? workers.commands[run_as] : command_of(endpoint);
  if (command.empty()) {
    return ApiError{ErrorKind::kUnprocessable,
                    "no worker is configured for tasks of type " + word + "; set tasks." + word +
                        "_command or tasks." + word + "_endpoint in the scheduler's configuration",
                    "task_type"};
  }
  v1::JobRequest native;
  v1::JobSpec& spec = *native.mutable_spec();
  spec.set_name(message.task_id());
  const bool is_large = message.payload().size() > kTaskPayloadInlineMax;
  spec.set_script(is_large ? script_with_input(command) : script_of(command));
  auto& environment = *spec.mutable_environment();
  environment[std::string(kTaskPayloadVariable)] = is_large ? kNoBase64 : base64_encoded(message.payload());
  environment["TASK_ID"] = message.task_id();
  environment["TASK_TYPE"] = word;
  environment["TASK_USER_ID"] = message.user_id();
  spec.add_secret_variables(std::string(kTaskPayloadVariable));
  auto& labels = *spec.mutable_labels();
  labels[std::string(kTaskIdLabel)] = message.task_id();
  labels[std::string(kTaskTypeLabel)] = word;
  if (!message.user_id().empty()) labels[std::string(kTaskUserLabel)] = message.user_id();
  v1::Resources& resources = *native.mutable_resources();
  resources.set_gpu_milli(milli_of(message.gpu_compute_required(), workers));
  resources.set_gpu_memory_mb(message.gpu_memory_required() > 0 ? message.gpu_memory_required()
                                                                : workers.gpu_memory_mb);
  resources.set_cpu_milli(endpoint.url.empty() ? static_cast<int32_t>(workers.cpu_milli[run_as]) : 0);
  Answer<JobRequest> job = read_job(native, containers_possible);
  if (!job) return job.error();
  add_task_content(job->spec, content);
  if (is_large) add_task_payload(job->spec, message.payload());
  if (const std::optional<WorkerRequest> worker = worker_request(workers, run_as))
    add_worker(job->spec, *worker);
  job->memory_is_default = message.gpu_memory_required() == 0;
  SubmitRequest request{.sets_reserved_labels = true};
  request.jobs.push_back(std::move(*job));
  return request;
}

algogpu::TaskStatus to_wire(TaskState state) {
  switch (state) {
    case TaskState::kPending:
      return algogpu::TASK_STATUS_PENDING;
    case TaskState::kRunning:
      return algogpu::TASK_STATUS_RUNNING;
    case TaskState::kCompleted:
      return algogpu::TASK_STATUS_COMPLETED;
    case TaskState::kFailed:
      return algogpu::TASK_STATUS_FAILED;
    case TaskState::kCancelled:
      return algogpu::TASK_STATUS_CANCELLED;
  }
  UNREACHABLE();
}

std::string task_message(JobId job, const std::string& sentence) {
  return sentence.empty() ? job_name(job) : job_name(job) + ": " + sentence;
}

void write_task(const std::string& id, const JobView& job, algogpu::TaskStatusResponse& out) {
  const TaskState state = task_state_of(job.state);
  out.set_task_id(id);
  out.set_status(to_wire(state));
  out.set_message(task_message(job.id, job.message));
  out.set_created_at(seconds_of(job.submitted_at));
  // A task that waits again has not started: its last attempt had.
  if (state != TaskState::kPending) out.set_started_at(seconds_of(job.started_at));
  out.set_completed_at(seconds_of(job.completed_at));
}

void write_change(const TaskChange& change, algogpu::TaskEvent& out) {
  out.set_task_id(change.id);
  out.set_status(to_wire(change.state));
  out.set_message(task_message(change.job, change.message));
  out.set_timestamp(seconds_of(change.at));
}

std::vector<JobId> jobs_on(const DeviceView& device) {
  std::vector<JobId> jobs = device.shared_by;
  if (device.held_by.valid()) jobs.push_back(device.held_by);
  for (const SliceView& slice : device.slices)
    if (slice.job.valid()) jobs.push_back(slice.job);
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return jobs;
}

int64_t memory_taken(const DeviceView& device) {
  const bool is_whole = device.state == "held" || device.state == "draining" || device.state == "quarantined";
  const int64_t reserved = is_whole ? device.memory_mb : device.memory_mb_given;
  return std::clamp<int64_t>(std::max(reserved, device.memory_used_mb), 0, device.memory_mb);
}

void write_gpus(const std::vector<NodeView>& nodes,
                const std::function<std::vector<std::string>(const std::vector<JobId>&)>& tasks_of, Time now,
                algogpu::GPUStatusResponse& out) {
  out.set_timestamp(seconds_of(now));
  for (const NodeView& node : nodes) {
    for (const DeviceView& device : node.devices) {
      algogpu::GPUInfo& gpu = *out.add_gpus();
      const int64_t used = memory_taken(device);
      gpu.set_gpu_id(device.gpu_id);
      gpu.set_name(device.model);
      gpu.set_memory_total(device.memory_mb);
      gpu.set_memory_used(used);
      gpu.set_memory_free(device.memory_mb - used);
      gpu.set_compute_util(device.utilization_percent);
      gpu.set_memory_util(percent_of(used, device.memory_mb));
      gpu.set_temperature(device.temperature_celsius);
      for (std::string& task : tasks_of(jobs_on(device))) gpu.add_running_tasks(std::move(task));
    }
  }
  std::sort(out.mutable_gpus()->begin(), out.mutable_gpus()->end(),
            [](const algogpu::GPUInfo& a, const algogpu::GPUInfo& b) { return a.gpu_id() < b.gpu_id(); });
}

}  // namespace gpusched::api
