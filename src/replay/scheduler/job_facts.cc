#include "replay/scheduler/job_facts.h"

namespace gpusched::replay {

predict::JobFacts facts_of(uint32_t job, const TraceJob& what) {
  return {.job = uint64_t{job} + 1,
          .user = what.user,
          .name = what.executable,
          .shape = 0,
          .size = what.size,
          .limit_ms = what.requested.ms()};
}

}  // namespace gpusched::replay
