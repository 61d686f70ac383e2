#pragma once

#include <cstdint>

#include "predict/predictor.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// The facts of a job that a predictor may know.
predict::JobFacts facts_of(uint32_t job, const TraceJob& what);

}  // namespace gpusched::replay
