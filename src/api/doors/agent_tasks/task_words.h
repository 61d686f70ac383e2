#pragma once

#include <cstdint>

#include "api/backend/tasks/task_index.h"
#include "base/task_labels.h"
#include "base/time.h"

/// The words of a task, for all that shows one: the labels of its job, and times.
namespace gpusched::api {

/// Unix seconds, as this door has times; 0: not yet.
inline int64_t seconds_of(Time time) { return time.valid() ? time.ns / 1'000'000'000 : 0; }

}  // namespace gpusched::api
