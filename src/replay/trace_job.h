#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace gpusched::replay {

/// One job of a recorded trace, whatever its format. Numbers that the trace does not have are zero.
struct TraceJob {
  uint64_t id = 0;     ///< As the trace has it.
  Duration submitted;  ///< Since the trace's own start.
  Duration run;        ///< How long it ran.
  Duration requested;  ///< What its user asked for; zero: nothing.
  int64_t size = 0;    ///< Processors or GPUs it asked for.
  uint64_t user = 0;
  uint64_t group = 0;
  uint64_t executable = 0;  ///< What it ran, as a number.
  uint64_t queue = 0;
};

/// A trace in the order of submission.
struct Trace {
  std::vector<TraceJob> jobs;
  int64_t capacity = 0;      ///< Of the recorded machine, in the unit of `size`; zero: not said.
  int64_t start_unix_s = 0;  ///< When the trace begins; zero: not said.
  uint64_t skipped = 0;      ///< Well-formed lines of jobs that never ran, or asked for nothing.
};

}  // namespace gpusched::replay
