#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// How the tasks' door says that a job is a task for a persistent worker: by variables behind its packed
/// specification (base/text/appended_environment.h). In a job's own environment no door lets these names in,
/// and there they mean nothing: nobody else leaves a process behind a job's end. Agents from before workers
/// run the job's script, as any other job's.
namespace gpusched {

/// Prefix of the names of these variables, and of those that a worker gets.
inline constexpr std::string_view kWorkerVariables = "GPU_SCHEDULER_WORKER";
/// The worker's command, a line for /bin/sh. An agent gives the task to a worker with this command instead of
/// running the job's own.
inline constexpr std::string_view kWorkerVariable = "GPU_SCHEDULER_WORKER";
/// Milliseconds in decimal: a worker without a task ends after so long.
inline constexpr std::string_view kWorkerIdleVariable = "GPU_SCHEDULER_WORKER_IDLE_MS";
/// In decimal: so many tasks the worker may have at once; absent: one.
inline constexpr std::string_view kWorkerTasksVariable = "GPU_SCHEDULER_WORKER_TASKS";
/// Milliseconds in decimal: so often a worker that wants it is asked how it is.
inline constexpr std::string_view kWorkerHealthVariable = "GPU_SCHEDULER_WORKER_HEALTH_MS";
/// The HTTP endpoint that the task is sent to, in the place of a worker's command (`to_text` in
/// base/net/endpoint.h).
inline constexpr std::string_view kWorkerEndpointVariable = "GPU_SCHEDULER_WORKER_ENDPOINT";
/// Whose task it is: a worker has tasks of one owner alone. The scheduler says so with the order to start.
inline constexpr std::string_view kWorkerOwnerVariable = "GPU_SCHEDULER_WORKER_OWNER";
/// The task's payload, in base64.
inline constexpr std::string_view kTaskPayloadVariable = "TASK_PAYLOAD_BASE64";

/// Longest stay of a worker without a task, whatever a specification says.
inline constexpr int64_t kWorkerIdleMsMax = 600'000;

/// Most tasks of a worker at once, whatever a specification says.
inline constexpr int64_t kWorkerTasksMax = 64;

struct WorkerRequest {
  std::string command = {};  ///< Empty where there is an endpoint: older agents run the job's script then.
  std::string idle_ms;
  std::string tasks = {};      ///< Empty: one.
  std::string health_ms = {};  ///< Empty: as its node does.
  std::string endpoint = {};   ///< Empty: the command is the worker.
  std::string owner = {};      ///< Empty: not told.
};

inline bool is_worker_variable(std::string_view name) { return name.starts_with(kWorkerVariables); }

/// After all else that is packed, and before `add_request_id` and `add_trace`.
void add_worker(std::string& packed_spec, const WorkerRequest& worker);
/// Tells the owner where there is a request: the same text for two tasks only if one and the same submitted
/// them.
void add_worker_owner(std::string& packed_spec, std::string_view owner);
/// The request that `add_worker` put there; nothing without one, whatever the job's own variables are.
std::optional<WorkerRequest> worker_of(std::string_view packed_spec);

}  // namespace gpusched
