#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// How a cluster of alike nodes runs gangs by the rules of published simulators: a job of any size over
/// any GPUs of several nodes, and preemption by service. The engine has neither: its gangs are members of one
/// shape, and it preempts by priority.
struct GangRules {
  uint32_t nodes = 0;
  uint32_t gpus_per_node = 8;
  /// A job has as few nodes as can be: whole free ones, and for the rest the fullest one that has it. Else
  /// any free GPUs will do.
  bool consolidated = false;
  /// The first in line run, and jobs behind them are stopped for it; else running jobs stay.
  bool preemptive = false;
  /// Behind a job that does not fit others are tried; else everybody waits for it.
  bool pass_blocked = false;
  /// A job that has waited for so long in all is passed by nobody any more; zero: nobody is so favoured.
  Duration patience;
  /// Extra time of a stopped job when it starts again.
  Duration restart;
};

/// Facts that an order may look at.
struct GangView {
  uint32_t job = 0;
  const TraceJob& what;
  Duration attained;   ///< For how long it has run; restarts are not counted.
  Duration remaining;  ///< Until its end, a restart that is due included: for oracles only.
  bool runs = false;
};

/// The order in which jobs go. Sees jobs in the order of events.
class GangOrder {
 public:
  virtual ~GangOrder() = default;
  /// The smaller goes first; then the one submitted first.
  virtual int64_t key(const GangView& view) = 0;
  /// After how much more running `key` will be another one without any event; kNever.ns: never.
  virtual Duration key_changes_after(const GangView& /*view*/) { return Duration{kNever.ns}; }
  virtual void submitted(uint32_t /*job*/, const TraceJob& /*what*/, Duration /*now*/) {}
  virtual void started(uint32_t /*job*/, const TraceJob& /*what*/, Duration /*now*/) {}
  virtual void stopped(uint32_t /*job*/, const TraceJob& /*what*/, Duration /*now*/) {}
  virtual void finished(uint32_t /*job*/, const TraceJob& /*what*/, Duration /*now*/) {}
};

/// Replays jobs, in the order of submission, none larger than the cluster (a CHECK). Deterministic. Costs
/// O(jobs there) an event.
ReplayOutcome replay_gangs(std::span<const TraceJob> jobs, const GangRules& rules, GangOrder& order);

/// By submission.
class FirstCome final : public GangOrder {
 public:
  int64_t key(const GangView&) override { return 0; }
};
/// Oracles: the shortest remaining time (SRTF; without preemption SJF), and the least remaining service, time
/// by GPUs (SRSF).
class ShortestTime final : public GangOrder {
 public:
  int64_t key(const GangView& view) override { return view.remaining.ns; }
};
class LeastService final : public GangOrder {
 public:
  int64_t key(const GangView& view) override { return view.remaining.ms() * view.what.size; }
};

/// Least attained service in levels, unaware of durations (Gu et al. 2019, "Tiresias"): a job's level is how
/// often its GPU-seconds so far have passed `base`, `base` times `ratio`, and so on; the lower goes first.
/// Within a level whoever runs stays, so that nobody is stopped for an equal.
class AttainedLevels final : public GangOrder {
 public:
  AttainedLevels(int64_t base_gpu_s, int64_t ratio_per_mille)
      : base_gpu_s_(base_gpu_s), ratio_per_mille_(ratio_per_mille) {}
  int64_t key(const GangView& view) override;
  Duration key_changes_after(const GangView& view) override;

 private:
  /// The level, and the GPU-milliseconds at which it ends.
  std::pair<int64_t, int64_t> level_of(const GangView& view) const;
  int64_t base_gpu_s_;
  int64_t ratio_per_mille_;
};

}  // namespace gpusched::replay
