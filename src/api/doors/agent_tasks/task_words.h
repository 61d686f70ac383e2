#pragma once

#include <cstdint>
#include <string_view>

#include "api/backend/tasks/task_book.h"
#include "base/time.h"

/// The words of a task, for all that shows one: the labels of its job, beside its id's, and times.
namespace gpusched::api {

/// embedding, llm, diffusion or other: what tokens it costs elsewhere (`admission.task_costs`).
inline constexpr std::string_view kTaskTypeLabel = "task_type";
/// The user that the client named; a task without one has no such label.
inline constexpr std::string_view kTaskUserLabel = "agent_user_id";

/// Unix seconds, as this door has times; 0: not yet.
inline int64_t seconds_of(Time time) { return time.valid() ? time.ns / 1'000'000'000 : 0; }

}  // namespace gpusched::api
