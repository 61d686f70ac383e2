#pragma once

#include <string_view>

#include "api/fields/job_rows.h"

namespace gpusched::api {

/// Returns the row of a job's field by its name at the jobs door; null when there is none. Takes steps in the
/// logarithm of the number of rows.
const JobRow* find_door_row(std::string_view door);

}  // namespace gpusched::api
