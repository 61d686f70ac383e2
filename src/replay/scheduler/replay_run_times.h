#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <span>
#include <vector>

#include "engine/policy/policy.h"
#include "predict/learned.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/scheduler/replay_policy.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// Expected run times of a replayed trace's jobs for the planner, by what a policy may know. Only jobs that
/// ended before teach it; a job that waits is predicted once, when it is first asked for. Its owner tells it
/// what happens. Not thread-safe.
class ReplayRunTimes final : public policy::RunTimes, public ReplayWatcher::Knowledge {
 public:
  /// Outlives neither `jobs`.
  ReplayRunTimes(std::span<const TraceJob> jobs, ReplayPolicy::Knows knows)
      : jobs_(jobs), knows_(knows), known_(jobs.size()) {}

  std::string_view name() const override { return "replay"; }
  Duration to_pass(const State& state, const Job& job, Time now) const override;
  Duration of_running(const State& state, const Job& job, Duration elapsed, Time now) const override;
  Duration to_order(const State& state, const Job& job, Duration attained, Time now) const override;

  /// The engine calls this job of the trace so.
  void submitted(JobId id, uint32_t index);
  uint32_t index_of(JobId id) const override;
  predict::RunTimes expected(uint32_t index, Time now) const override;
  /// It runs, for the first time or again, and needs `left` until its end.
  void started(uint32_t index, Duration left, Time now);
  void finished(uint32_t index, Duration run, Time now);
  void stopped(uint32_t index);

 private:
  struct Known {
    int64_t pass_ms = -1;  ///< Not asked for yet.
    int64_t running_ms = -1;
    Duration left;  ///< Need from its start on; zero: its whole run.
  };

  Duration unknown(const TraceJob& job) const;

  std::span<const TraceJob> jobs_;
  ReplayPolicy::Knows knows_;
  predict::Learned predictor_;
  std::vector<uint32_t> index_;  ///< By engine's number.
  mutable std::vector<Known> known_;
};

}  // namespace gpusched::replay
