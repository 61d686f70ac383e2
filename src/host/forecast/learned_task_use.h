#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "engine/messages/events.h"
#include "model/state.h"
#include "predict/task_use.h"

namespace gpusched {

/// The number of a task of an agent's kind: its tenant, type, and the order of its payload's size (how many
/// binary digits that has). Nothing: the packed JobSpec is no task's.
std::optional<uint64_t> task_kind_of(TenantId tenant, std::string_view spec);

/// GPU use of agents' tasks, as finished ones teach it; its owner reports the events.
///
/// A completed task teaches. A task that was ended for passing its share of memory teaches too: see
/// predict::TaskUse. A task that failed by itself with learned memory may have failed for want of it, which
/// nobody can tell: then its kind is learned again, and until that is done tasks get the default. Other
/// failed tasks and cancelled ones teach nothing. Not thread-safe.
class LearnedTaskUse {
 public:
  /// How good the memory was that tasks were given by what had been learned, of those that ended since the
  /// start and whose memory is known.
  struct Score {
    int64_t count = 0;
    int64_t within = 0;                 ///< They had no more than they were given.
    int64_t given_mb = 0, peak_mb = 0;  ///< Sums.

    void add(int64_t given, int64_t peak);
  };
  /// Number of tenants that are counted by themselves; all others are counted together.
  static constexpr std::size_t kScoredTenantsMax = 64;

  /// Learns from the newest finished jobs of a state, without counting them.
  void begin(const State& state);
  /// Learns an event that `state` already has.
  void observe(const State& state, const Event& event);

  const predict::TaskUse& use() const { return use_; }
  const Score& score() const { return score_; }
  /// The first kScoredTenantsMax that had a score, and under no tenant all others.
  const std::map<TenantId, Score>& score_by_tenant() const { return by_tenant_; }

 private:
  void ended(const State& state, const Job& job, bool is_scored);

  predict::TaskUse use_;
  Score score_;
  std::map<TenantId, Score> by_tenant_;
};

}  // namespace gpusched
