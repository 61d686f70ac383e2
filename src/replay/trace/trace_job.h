#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace gpusched::replay {

/// One job of a recorded trace, whatever its format. Numbers that the trace does not have are zero.
struct TraceJob {
  uint64_t id = 0;     ///< As the trace has it, or its place there where ids are words.
  Duration submitted;  ///< Since the trace's own start.
  Duration run;        ///< How long it ran.
  Duration requested;  ///< Run time that its user asked for; zero: none.
  int64_t size = 0;    ///< Processors or GPUs it asked for.
  uint64_t user = 0;   ///< 1 is the trace's first where users are words.
  uint64_t group = 0;
  uint64_t executable = 0;  ///< Its program, as a number.
  uint64_t queue = 0;       ///< Or virtual cluster, or tenant: with names, an index into Trace::queue_names.
};

/// A trace in the order of submission.
struct Trace {
  std::vector<TraceJob> jobs;
  std::vector<std::string> queue_names;  ///< Where queues have names; [0] is "".
  int64_t capacity = 0;                  ///< Recorded machine's size, in the unit of `size`; zero: not said.
  int64_t start_unix_s = 0;              ///< When the trace begins; zero: not said.
  uint64_t skipped = 0;                  ///< Well-formed lines of jobs that never ran, or asked for nothing.
};

}  // namespace gpusched::replay
