#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <vector>

#include "forecast/world.h"
#include "predict/run_times.h"

/// When will it start? The real engine and planner run forward on copies of a state, each time with other run
/// times of those that are likely, and what comes out is counted. Everything but run times is as in the
/// engine because it is the engine: nodes that are down, held jobs, dependencies, begin times, quotas,
/// reservations and preemption. The unknown is not in it: later submissions, failures, nodes that
/// come or go.
namespace gpusched::forecast {

/// Source of run times of jobs. Used from one thread; deterministic.
class RunSource {
 public:
  virtual ~RunSource() = default;
  /// The whole run of a job that has run for `elapsed`, longer than that: `per_mille` of those that are
  /// likely are not longer.
  virtual Duration whole_run(const State& state, const Job& job, Duration elapsed, int32_t per_mille) = 0;
};

/// Answer of RunSource::whole_run when `known` is what is known of the job's run time, and `limit` its limit;
/// zero: none. Where no similar work ever ran for so long, a job that has run for a time runs twice as long
/// as likely as not, and ten times as long with a chance of a tenth: the heavy tail that run times have
/// (Harchol-Balter, Downey 1997, "Exploiting process lifetime distributions for dynamic load balancing"); one
/// that has not begun counts as one that has run for kFirstRun.
Duration sampled_run(const predict::RunTimes& known, Duration limit, Duration elapsed, int32_t per_mille);
inline constexpr Duration kFirstRun = minutes(15);

struct Options {
  uint32_t runs = 16;       ///< 1 to limits::kForecastRunsMax.
  uint64_t work = 400'000;  ///< Work of one run; at most limits::kForecastWorkMax.
  uint64_t seed = 1;
  Duration start_delay = milliseconds(100);    ///< Delay from a placement to its start.
  Duration stop_delay = seconds(10);           ///< Delay from the order to stop an attempt to its end.
  Duration release_delay = milliseconds(500);  ///< Delay from an attempt's end to its empty devices.
  JobId only;                                  ///< Given: a run ends when this one has started.
};

/// Start of a waiting job, as far as is known; for a placed job its placement.
struct Estimate {
  Time p50 = kNever;  ///< Half of the runs started it by then; kNever: not within the work limit.
  Time p90 = kNever;
  /// When every job takes all of the time that it may, as by its limit; kNever: some job before it may run
  /// for ever. Later submissions and failures are not in it either. Never before p90 where both are known.
  Time at_latest = kNever;
  Time later_than;  ///< Lower bound if a quantile is kNever: not started by then.
  /// p50 is kNever and no predictable event starts it: an operator has to act.
  bool stuck = false;
  /// Jobs that are ended for it, and when, when every job takes all of the time that it may; empty: none.
  std::vector<JobId> ends;
  Time ends_at;
  int64_t place = 0;  ///< Among those that wait, by p50, then by their place in line; 1 starts first.
};

struct Forecast {
  Time at;                ///< Time of the state that it started from.
  uint64_t sequence = 0;  ///< The newest command in that.
  uint32_t runs = 0;      ///< Number of runs that contributed; fewer than requested if time ran out.
  boost::unordered_flat_map<uint64_t, Estimate> jobs;  ///< Keyed by job: all that waited.

  /// Null when it did not wait then.
  const Estimate* find(JobId job) const {
    const auto it = jobs.find(job.value);
    return it == jobs.end() ? nullptr : &it->second;
  }
};

/// `begin` is settled; what it has placed meanwhile starts at once. `goes_on` is asked now and then: false
/// ends it, with the runs that are over; empty: every run goes to its end. At least one run is made as far as
/// it goes.
Forecast forecast(const World& begin, RunSource& source, const Options& options,
                  const std::function<bool()>& goes_on = {});

}  // namespace gpusched::forecast
