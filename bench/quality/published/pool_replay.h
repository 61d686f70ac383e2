#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// The believed needs of a job; made once, when it is submitted.
struct RunEstimate {
  Duration order;  ///< Estimate by which the shortest goes first behind a blocked head.
  Duration hold;   ///< For how long it is believed to hold what it gets, when it asks to pass others.
  /// The same once it runs, when others ask how long it will; zero: `hold`.
  Duration running = {};
};

/// Estimates run times. Sees jobs in the order of events; the run time of a job is known to it only through
/// `finished` (but for an oracle, which says so in its name).
class Estimator {
 public:
  virtual ~Estimator() = default;
  virtual RunEstimate submitted(uint32_t job, const TraceJob& what, Duration now) = 0;
  /// The estimate of a running job ran out: the new one for the whole run, longer than `elapsed`.
  virtual Duration ran_out(uint32_t job, const TraceJob& what, Duration estimate, Duration elapsed) = 0;
  virtual void started(uint32_t /*job*/, const TraceJob& /*what*/, Duration /*now*/) {}
  virtual void finished(uint32_t /*job*/, const TraceJob& /*what*/, Duration /*now*/) {}
};

/// How one pool of alike processors is scheduled: first come, first served, with backfilling behind a blocked
/// head. The rules are those under which the averages of Gaussier et al. (SC'15) come out to the digit:
/// at one instant first estimates run out, then jobs are submitted, then they end.
struct PoolRules {
  int64_t capacity = 0;
  uint32_t reservations = 1;    ///< 1: EASY.
  bool shortest_first = false;  ///< SJBF: behind the blocked ones in the order of `order`.
  /// Every submission starts a pass; else only one that fits at that moment.
  bool pass_at_every_submission = false;
};

struct PoolOutcome {
  std::vector<Duration> started;  ///< By job, since the trace's start.
  uint64_t passes = 0;
  uint64_t corrections = 0;  ///< Estimates that ran out.
  /// Starts that found more in use than there is, for that instant alone: the published rules count a job as
  /// gone at its estimated end also when its end comes later in the same second.
  uint64_t overfull_starts = 0;
};

/// Replays `jobs` (in the order of submission, none larger than the pool) on a virtual clock, with the
/// engine's own backfilling. Deterministic. Throws nothing; a job that is too large is a CHECK.
PoolOutcome replay_pool(std::span<const TraceJob> jobs, const PoolRules& rules, Estimator& estimator);

/// Mean of max(1, (wait + run) / max(run, `bound`)): the average bounded slowdown (Feitelson, Rudolph 1998).
double bounded_slowdown(std::span<const TraceJob> jobs, std::span<const Duration> started, Duration bound);

}  // namespace gpusched::replay
