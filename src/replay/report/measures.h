#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// Statistics of many numbers; all zero for none.
struct Percentiles {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
/// The p-th percentile is the smallest number that at least p % do not exceed.
Percentiles percentiles_of(std::vector<double> values);

/// The results of a replay, in seconds and shares. Only of jobs that ran.
struct Measures {
  uint64_t jobs = 0;
  Percentiles wait_s;        ///< From submission to the first start.
  Percentiles completion_s;  ///< From submission to the end.
  /// Mean of max(1, completion / max(run, 10 s)).
  double bounded_slowdown = 0;
  /// GPU-seconds of the jobs' run times over those that there were from the first submission to the last end.
  double utilisation = 0;
  /// Finish-time fairness (Mahajan et al. 2020, "Themis"): completion over what it would have been on a
  /// static share of 1/N of the cluster, N being how many jobs there were on average while this one was
  /// there; run times below 10 s count as 10 s. Above 1: sharing was worse than having that share.
  Percentiles unfairness;
  uint64_t preemptions = 0;
  uint64_t preemptions_max = 0;  ///< The most for one job.
  double makespan_s = 0;
};

Measures measures_of(std::span<const TraceJob> jobs, const ReplayOutcome& outcome, int64_t capacity);

/// Each arrival moved by whole milliseconds, up to `by` either way but not before zero, and the jobs in the
/// order of their new arrivals: what luck is worth shows in how much a figure changes.
std::vector<TraceJob> shaken(std::vector<TraceJob> jobs, Duration by, uint64_t seed);

}  // namespace gpusched::replay
