#pragma once

#include <string_view>

/// Labels of the jobs that are tasks of agents.
namespace gpusched {

/// Makes a job a task: its value is the id that the client chose, a name within the tenant.
inline constexpr std::string_view kTaskIdLabel = "agent_task_id";
/// embedding, llm, diffusion or other: what tokens it costs elsewhere (`admission.task_costs`).
inline constexpr std::string_view kTaskTypeLabel = "task_type";
/// The user that the client named; a task without one has no such label.
inline constexpr std::string_view kTaskUserLabel = "agent_user_id";

}  // namespace gpusched
