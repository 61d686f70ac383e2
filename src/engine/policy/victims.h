#pragma once

#include <cstdint>
#include <map>

#include "engine/decide/guarantees.h"
#include "engine/policy/policy.h"

/// Choice of victims: who may be ended for whom, and who is.
namespace gpusched::policy {

/// A job's own priority and its tenant's tier; waiting earns nothing here, or two jobs could take turns in
/// ending each other.
int64_t effective_priority(const State& state, const Job& job);

/// True when among jobs of the same effective priority one of a lower level of `least_attained` may end
/// one of a higher: when jobs stand in that order, and the configuration says so.
bool ends_by_attained(const State& state);

/// Standing of a job at `now` when it comes to ending others; a job that ends another has strictly more.
/// Effective priority, then, with `ends_by_attained`, the level: falling as the job attains service, also
/// while it runs, and never rising; waiting counts no more than with priorities.
int64_t standing_of(const State& state, const Job& job, Time now);

/// Value that strictly falls with every preemption and every start; so without arrivals, ends, faults and
/// people's changes there are only finitely many, and no job can, over any number of others, be ended for one
/// that it was ended for. A promised job counts as having its devices, one that is told to end as not.
///
/// First what of the guarantees is idle, GPUs before the rest, the deepest tenants first, then what of pools'
/// shares. Nothing adds to it but a reclaim, which takes from a deeper tenant, from GPUs, or from a guarantee
/// what it adds to a higher one, to the rest, or to a pool: see `guarantees::preserves_guarantees`. Then how
/// many unfinished jobs are without devices, by standing, from the highest down: a start takes one away, a
/// preemption without a claim takes one from the preemptor's level and adds only to lower ones. Levels of
/// `least_attained` fall meanwhile, which lowers it too where the job waits; that a job falls to the next one
/// takes all the service that lies between, and happens a bounded number of times.
struct Potential {
  guarantees::Idle idle;
  std::map<int64_t, int64_t> waiting;  ///< By standing.
};
Potential potential_of(const State& state);
bool potential_less(const Potential& a, const Potential& b);

/// Ends those who lose the fewest GPU-seconds since they last saved their work.
///
/// A job may end jobs of strictly lower standing (`standing_of`), of tenants with `allow_preemption`, if its
/// own tenant has `can_preempt_others`; jobs of a tenant that callers without a credential use end only those
/// of such tenants. The attempt must have run for `protection`, the job must not have been ended for another
/// one in the last `recent`, nor `budget` times in all.
///
/// Counted is, for each victim, GPUs x time since it saved its work, of at most `loss_max`; of one that never
/// said so in this attempt, the time since its start, of at most `silent_max`. So ties among jobs that say
/// nothing are broken by what they really lose, and keeping silent protects for no longer than `silent_max`.
///
/// A guarantee is taken back from whoever borrowed it, whatever the flags and priorities; what would protect
/// a victim otherwise (`protection`, `recent`, `budget`) then only means that others go first.
///
/// `grace` is what victims are given to end if they ask for no more, `grace_max` the most that they are
/// given.
///
/// Finds the best set of at most `kExactMax` candidates by trying all; with more it takes the cheapest first
/// until they suffice, then leaves out those that are not needed. Thread-safe.
class LeastLost final : public VictimSelect {
 public:
  struct Params {
    Duration protection = seconds(60);
    Duration recent = minutes(10);
    int64_t budget = 3;
    Duration patience = seconds(30);
    Duration silent_max = minutes(5);
    Duration loss_max = hours(1);
    Duration grace = seconds(10);
    Duration grace_max = minutes(5);
  };
  static constexpr std::size_t kExactMax = 8;

  explicit LeastLost(const Params& params) : params_(params) {}
  std::string_view name() const override { return "least_lost"; }
  Time allowed_from(const State& state, const Job& by, const Attempt& attempt) const override;
  bool reclaimable(const State& state, const Attempt& attempt) const override;
  bool spared(const State& state, const Attempt& attempt, Time now) const override;
  Duration patience() const override { return params_.patience; }
  Duration grace() const override { return params_.grace; }
  Duration grace_of(const Job& victim) const override {
    return std::max(params_.grace, std::min(milliseconds(victim.preempt_grace_ms), params_.grace_max));
  }
  std::optional<VictimChoice> choose(const Lack& lack, const std::vector<VictimView>& candidates, Time now,
                                     const VictimLimit& limit = {}) const override;

 private:
  VictimCost cost_of(const VictimView& victim, Time now) const;
  Time protected_until(const Job& job, const Attempt& attempt) const;

  Params params_;
};

}  // namespace gpusched::policy
