#pragma once

#include <cstddef>

#include "base/limits.h"
#include "base/queue_limits.h"
#include "engine/messages/commands.h"
#include "engine/policy/policy.h"

namespace gpusched {

/// A slice of a cycle takes no further group: it has limits::kPlacementsPerSlice, or limits::kMembersPerSlice
/// members.
inline bool is_full(const CommitPlan& plan) {
  if (plan.groups.size() >= limits::kPlacementsPerSlice) return true;
  std::size_t members = 0;
  for (const PlanGroup& group : plan.groups) members += group.members.size();
  return members >= limits::kMembersPerSlice;
}

/// Until when expectations are trusted beside a job that is promised `start` now.
Time trust_until(Time now, Time start);

/// A start then on that node would not be over when its next reservation begins.
bool runs_into_booking(const policy::RunTimes& run_times, const State& state, const Job& job, uint32_t slot,
                       Time start, Time now);

}  // namespace gpusched
