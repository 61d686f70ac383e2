#pragma once

#include <string>
#include <vector>

#include "api/contract/errors.h"
#include "api/contract/jobs.h"
#include "engine/messages/job_request.h"
#include "model/state.h"

/// Ended jobs, submitted again as they were asked for.
namespace gpusched::api {

/// A job that is to run again.
struct Rerun {
  SubmitRequest submission;  ///< As the checks of submissions see it.
  std::vector<Part> parts;
  std::string reservation;           ///< Name of the one that it asked for; empty: none.
  std::vector<IndexRange> elements;  ///< Indexes of the new array; empty: it is none.
  int64_t at_once = 0;               ///< Elements that run at a time; 0: no limit.
};

/// kConflict: it has not ended, it is another door's, or what is asked for of it is not there any more.
/// kUnprocessable: it has no such elements.
Answer<Rerun> rerun_of(const State& state, const Job& job, const RerunRequest& request);

/// Gives the engine's request what stands in the record of the old job.
void take_record(const Job& job, Rerun rerun, gpusched::JobRequest& request);

}  // namespace gpusched::api
