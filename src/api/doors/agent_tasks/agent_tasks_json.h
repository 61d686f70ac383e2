#pragma once

#include <string>
#include <vector>

#include "api/backend/tasks/task_index.h"
#include "api/contract/jobs.h"
#include "api/contract/nodes.h"
#include "base/time.h"

/// The answers of the tasks door over HTTP. Times are Unix seconds, sizes MB, shares per cent.
namespace gpusched::api {

std::string health_json(Time now);
/// All GPUs by their numbers.
std::string gpu_metrics_json(const std::vector<NodeView>& nodes);
/// `pending` and `running` may be the oldest of many; `counts` says how many there are. Jobs whose
/// description the caller may not see are left out.
std::string queue_json(const TaskIndex::Counts& counts, const std::vector<JobView>& pending,
                       const std::vector<JobView>& running);
/// `gpus`: as gpu_metrics_json has them; they stand in a text, as clients expect it.
std::string task_metrics_json(const TaskIndex::Counts& counts, const std::string& gpus, Time now);

}  // namespace gpusched::api
