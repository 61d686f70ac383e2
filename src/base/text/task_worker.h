#pragma once

#include <string_view>

/// How a job says that it is a task for a persistent worker: by variables of its specification. Agents from
/// before workers run its script, as any other job's.
namespace gpusched {

/// The worker's command, a line for /bin/sh. An agent gives the task to a worker with this command instead of
/// running the job's own.
inline constexpr std::string_view kWorkerVariable = "GPU_SCHEDULER_WORKER";
/// Milliseconds in decimal: a worker without a task ends after so long.
inline constexpr std::string_view kWorkerIdleVariable = "GPU_SCHEDULER_WORKER_IDLE_MS";
/// The task's payload, in base64.
inline constexpr std::string_view kTaskPayloadVariable = "TASK_PAYLOAD_BASE64";

}  // namespace gpusched
