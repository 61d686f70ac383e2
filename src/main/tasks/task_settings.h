#pragma once

#include <memory>

#include "api/server.h"
#include "config/config.h"
#include "engine/policy/task_order.h"

/// The section `tasks` of the configuration, as the door and the scheduler take it.
namespace gpusched {

api::AgentTasksOptions agent_tasks_of(const Config::Tasks& tasks);

/// How tasks are ordered and that they are packed. Null where no worker runs any task: then no job is looked
/// at for it.
std::shared_ptr<const policy::TaskOrder> task_order_of(const Config::Tasks& tasks);

}  // namespace gpusched
