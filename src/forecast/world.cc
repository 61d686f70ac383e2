#include "forecast/world.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched::forecast {
namespace {

/// Cost of a slice that looks at little.
constexpr uint64_t kSliceWork = 8;

}  // namespace

World::World(State state, policy::PolicySet policies, Time now)
    : state_(std::move(state)), planner_(std::move(policies)), now_(std::max(now, state_.last.at)) {
  state_.config.finished_jobs_kept = limits::kSettingMax;
  state_.config.finished_jobs_max = INT64_MAX;
  planner_.reset(state_);
}

World::World(State state, const Planner& planner, Time now)
    : state_(std::move(state)), planner_(planner), now_(now) {}

World World::copy() const { return {state_.clone(), planner_, now_}; }

void World::move_to(Time now) {
  CHECK(now >= now_);
  now_ = now;
}

Applied World::apply(const Command& command) {
  events_.clear();
  const Applied applied =
      gpusched::apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
  for (const Event& event : events_) {
    planner_.observe(state_, event);
    if (const auto* placed = std::get_if<AttemptPlaced>(&event)) placed_.push_back(placed->job);
  }
  return applied;
}

void World::put_back(const Event& event) {
  evolve(state_, event);
  planner_.observe(state_, event);
}

bool World::settle(Work& work, const std::function<void()>& seen) {
  while (true) {
    if (state_.next_due() <= now_) {
      apply(AdvanceTime{});
      if (!work.take(1 + events_.size())) return false;
      if (seen) seen();
      continue;
    }
    if (!planner_.wants_cycle()) return true;
    const Planner::Slice slice = planner_.plan(state_, now_);
    const bool goes_on = work.take(kSliceWork + slice.looks / 64);
    if (!slice.plan.groups.empty()) {
      apply(slice.plan);
      if (seen) seen();
    }
    planner_.plan_applied(state_);
    if (!goes_on) return false;
  }
}

std::optional<PlanGroup> World::would_start(JobId job, Work& work) {
  while (planner_.wants_cycle()) {
    const Planner::Slice slice = planner_.plan(state_, now_);
    const bool goes_on = work.take(kSliceWork + slice.looks / 64);
    for (const PlanGroup& group : slice.plan.groups) {
      if (group.job != job) continue;
      // It is not applied: what it took for used is free again, and the job waits as before.
      planner_.plan_applied(state_);
      return group;
    }
    // Others that start before it do so in this world too.
    if (!slice.plan.groups.empty()) apply(slice.plan);
    planner_.plan_applied(state_);
    if (!goes_on) break;
  }
  return std::nullopt;
}

}  // namespace gpusched::forecast
