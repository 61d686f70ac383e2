#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/jobs.h"
#include "api/contract/nodes.h"
#include "base/time.h"

/// The tasks door's JSON.
namespace gpusched::api {

/// The body of POST /tasks.
Answer<SubmitRequest> parse_task(std::string_view body, bool containers_possible);
/// The body of PUT /quota: the share of online work, in thousandths.
Answer<int64_t> parse_quota(std::string_view body);
/// The states of jobs that a task's status stands for; none: there is no such status.
std::vector<JobState> states_of_status(std::string_view status);

/// The answer to POST /tasks.
std::string submitted_task_json(const JobView& job);
std::string task_json(const JobView& job);
std::string tasks_json(const std::vector<JobView>& jobs, int64_t total);
/// `now`: as of when it is told.
std::string gpus_json(const std::vector<NodeView>& nodes, Time now);
std::string quota_json(const PoolsView& pools);

}  // namespace gpusched::api
