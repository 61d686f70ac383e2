#pragma once

#include <memory>

#include "api/backend/tasks/task_index.h"
#include "api/contract/backend.h"
#include "api/contract/caller.h"
#include "api/doors/agent_tasks/task_admission.h"
#include "api/doors/agent_tasks/task_messages.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class GrpcThread;

struct AgentTasksOptions {
  TaskLimits limits = {};
  TaskWorkers workers = {};
};

/// algogpu.GPUScheduler: many small tasks of AI agents. Refusals are answers, as existing clients expect it;
/// only a missing right, and a scheduler that cannot serve, end a call with an error. Book and doorkeeper
/// must outlive it.
std::unique_ptr<grpc::Service> make_agent_tasks_service(Backend& backend, TaskIndex& index,
                                                        GrpcThread& thread, const Doorkeeper& doorkeeper,
                                                        const AgentTasksOptions& options);

}  // namespace gpusched::api
