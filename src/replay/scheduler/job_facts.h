#pragma once

#include <cstdint>

#include "predict/predictor.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// What of a job a predictor may know.
predict::JobFacts facts_of(uint32_t job, const TraceJob& what);

}  // namespace gpusched::replay
