#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "algogpu/algogpu.pb.h"
#include "api/backend/tasks/task_index.h"
#include "api/contract/jobs.h"
#include "api/contract/nodes.h"
#include "api/doors/agent_tasks/task_admission.h"
#include "base/net/endpoint.h"
#include "base/text/task_content.h"

/// Tasks as jobs, and jobs and GPUs as the tasks door over gRPC has them.
namespace gpusched::api {

inline constexpr std::size_t kTaskIdBytesMax = 253;  ///< For the ids of tasks and users: they are labels.

/// Commands and endpoints that run tasks, and the GPU share that tasks get.
struct TaskWorkers {
  /// A line for /bin/sh; empty: tasks of the kind are refused. Those of no kind are run as others.
  std::array<std::string, kTaskKinds> commands = {};
  /// True where the command is a persistent worker's, which gets many tasks.
  std::array<bool, kTaskKinds> persistent = {};
  /// Where tasks are sent in the place of a command; without a URL: nowhere.
  std::array<Endpoint, kTaskKinds> endpoints = {};
  /// Tasks that such a worker gets at once, and an endpoint on a node; 0 is 1.
  std::array<int64_t, kTaskKinds> tasks_at_once = {};
  /// Thousandths of a CPU core that a task asks for; one that is sent to an endpoint asks for none.
  std::array<int64_t, kTaskKinds> cpu_milli = {};
  int64_t idle_ms = 30'000;       ///< A persistent worker without a task ends after so long.
  int64_t health_ms = 10'000;     ///< Period of questions to one that wants it.
  int64_t gpu_memory_mb = 1'024;  ///< For a task that asks for none, until it is learned.
  int64_t gpu_tflops = 100;       ///< Compute of a whole GPU, where a task asks for compute.
};

TaskKind kind_of(algogpu::TaskType type);

/// The digest of a task's user, type, memory, compute and payload. A message has the same one in every
/// version of the program: it is kept with the jobs.
TaskContent content_of(const algogpu::TaskRequest& message);

/// The task's job, which keeps `content`, the message's. Errors are for the client to read: a refused task.
Answer<SubmitRequest> read_task(const algogpu::TaskRequest& message, TaskContent content,
                                const TaskWorkers& workers, bool containers_possible);

algogpu::TaskStatus to_wire(TaskState state);
/// "job-12: " and the sentence about it, or the job alone.
std::string task_message(JobId job, const std::string& sentence);
void write_task(const std::string& id, const JobView& job, algogpu::TaskStatusResponse& out);
void write_change(const TaskChange& change, algogpu::TaskEvent& out);
/// `tasks_of`: the ids of those tasks among the jobs that may be told.
void write_gpus(const std::vector<NodeView>& nodes,
                const std::function<std::vector<std::string>(const std::vector<JobId>&)>& tasks_of, Time now,
                algogpu::GPUStatusResponse& out);
/// Memory of a device, in MB, that no further task gets: what is reserved for its holders, and no less than
/// is in use there.
int64_t memory_taken(const DeviceView& device);
/// The jobs that are on a device, each once.
std::vector<JobId> jobs_on(const DeviceView& device);

}  // namespace gpusched::api
