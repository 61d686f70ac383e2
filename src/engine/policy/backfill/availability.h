#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "engine/policy/backfill/pool_amounts.h"
#include "engine/policy/backfill/release_timeline.h"

namespace gpusched::policy {

/// Free part of a pool from now on: the profile of conservative backfilling (Feitelson, Weil 1998,
/// "Utilization and predictability in scheduling the IBM SP2 with backfilling"; docs/policies.md).
///
/// Problem: with several reservations a hole before, between or behind them may be long enough for a job.
/// Idea: a step function of time, one for all resources, from which reservations are taken off.
/// Example: 8 GPUs, 6 held until 10: 2 free from now, 8 from 10. All 8 are reserved for [12, 15): 2 from now,
/// 8 from 10, 0 from 12, 8 from 15. A job of 4 GPUs and length 3 fits first at 15: [10, 12) is too short.
/// Cost: each operation O(log s + the steps it spans), `earliest_fit` O(s), for s steps: at most one for each
/// distinct end or start. Not thread-safe.
class Availability {
 public:
  struct Step {
    Time from;  ///< Until the next step's `from`; the last one lasts for ever.
    PoolAmounts free;
  };

  /// The pool at `now`: `capacity` less the work that runs, which is given back at its estimated end.
  Availability(const PoolAmounts& capacity, const ReleaseTimeline& running, Time now);

  /// Takes `amounts` off during [begin, end). `begin` is not before `now`. Free amounts may fall below zero
  /// when the pool shrank or the caller did not ask first.
  void take(Time begin, Time end, const PoolAmounts& amounts);
  /// Gives back what `take` took.
  void give(Time begin, Time end, const PoolAmounts& amounts);
  /// True when `amounts` are free throughout [begin, end).
  bool fits(Time begin, Time end, const PoolAmounts& amounts) const;
  /// The first instant from `from` on at which `amounts` are free for as long as `length`; kNever when there
  /// is none. The answer is `from` or the start of a step.
  Time earliest_fit(Time from, Duration length, const PoolAmounts& amounts) const;

  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::size_t step_at(Time at) const;
  std::size_t split(Time at);
  void join(std::size_t at);

  std::vector<Step> steps_;
};

/// `at + length`, or kNever where that would overflow.
constexpr Time saturating_end(Time at, Duration length) {
  return length.ns >= kNever.ns - at.ns ? kNever : at + length;
}

}  // namespace gpusched::policy
