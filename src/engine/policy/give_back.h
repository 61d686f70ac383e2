#pragma once

#include "engine/policy/policy.h"
#include "model/job.h"

namespace gpusched::policy {

/// Whether what somebody holds who ends then comes back when the job must have started already: nobody is
/// ended for it.
inline bool gives_back_too_late(const Job& job, Time ended) {
  return job.deadline.valid() && ended + kDrainExpected >= job.deadline;
}

}  // namespace gpusched::policy
