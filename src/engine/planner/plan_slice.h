#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "base/queue_limits.h"
#include "engine/messages/commands.h"
#include "engine/policy/policy.h"

namespace gpusched {

/// Counts what a slice of a cycle does. Groups are only added to its plan, and each is counted once, since it
/// is asked before each placement.
struct SliceWork {
  uint64_t visits = 0;  ///< Nodes looked at.

  /// Returns whether it takes no further group: it has limits::kPlacementsPerSlice, or
  /// limits::kMembersPerSlice members.
  bool is_full(const CommitPlan& plan) {
    for (; groups < plan.groups.size(); ++groups) members += plan.groups[groups].members.size();
    return groups >= limits::kPlacementsPerSlice || members >= limits::kMembersPerSlice;
  }

  std::size_t groups = 0;   ///< Counted so far,
  std::size_t members = 0;  ///< and their members.
};

/// Until when expectations are trusted beside a job that is promised `start` now.
Time trust_until(Time now, Time start);

/// A start then on that node would not be over when its next reservation begins.
bool runs_into_booking(const policy::RunTimes& run_times, const State& state, const Job& job, uint32_t slot,
                       Time start, Time now);

}  // namespace gpusched
