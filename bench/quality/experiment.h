#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "replay/trace/formats.h"
#include "replay/trace/traces_folder.h"
#include "table.h"

/// Common parts of the experiments' programs: their arguments, and traces that may not be there.
namespace gpusched::quality {

/// Calls `run` with the number that the program was given, kShakenRuns without one. The exit status: 0 when
/// all is met or skipped, 1 when something is not, 2 for a wrong argument.
inline int run_experiment(int argc, char** argv, const char* name, int (*run)(int runs)) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : kShakenRuns;
  if (runs >= 1 && runs <= 1000) return run(runs);
  std::fprintf(stderr, "usage: tools/bench quality %s [RUNS]: 1 to 1000 shaken runs\n", name);
  return 2;
}

/// A trace of the folder of traces. None when it is not there, which is said; when it is broken, `status`
/// becomes 1.
inline std::optional<replay::Trace> open_trace(const char* format, const std::string& file, int& status) {
  Result<replay::Trace> trace = replay::read_trace(format, replay::traces_folder() + file);
  if (trace.ok()) return std::move(*trace);
  if (trace.error().code != ErrorCode::kNotFound) {
    std::fprintf(stderr, "%s\n", trace.error().message.c_str());
    status = 1;
    return std::nullopt;
  }
  std::printf("skipped: %s; GPUSCHED_TRACES names the folder of traces\n", trace.error().message.c_str());
  return std::nullopt;
}

/// The trace's jobs of one queue; of all for null.
inline std::vector<replay::TraceJob> jobs_of(const replay::Trace& trace, const char* queue) {
  std::vector<replay::TraceJob> jobs;
  for (const replay::TraceJob& job : trace.jobs) {
    if (queue == nullptr || trace.queue_names[job.queue] == queue) jobs.push_back(job);
  }
  return jobs;
}

}  // namespace gpusched::quality
