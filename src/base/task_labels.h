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
/// Says where the GPU memory comes from that the task was given, where it asked for none: kTaskMemoryLearned,
/// or absent for the default of the scheduler's configuration.
inline constexpr std::string_view kTaskMemoryLabel = "agent_task_memory";
inline constexpr std::string_view kTaskMemoryLearned = "learned";
/// Learned load of such a task on a GPU, in thousandths of it, from 0 to 1000; absent: unknown. It counts in
/// the order of tasks.
inline constexpr std::string_view kTaskLoadLabel = "agent_task_load";

}  // namespace gpusched
