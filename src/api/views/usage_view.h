#pragma once

#include <string>

#include "api/contract/jobs.h"
#include "model/job.h"

namespace gpusched::api {

/// The known use of resources by an attempt.
UsageView usage_view(const AttemptUsage& usage);
/// The same in words, such as "memory up to 201 MB, 1.2 s of CPU time, GPUs 83 % busy"; empty when nothing is
/// known.
std::string usage_sentence(const UsageView& usage);

}  // namespace gpusched::api
