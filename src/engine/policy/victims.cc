#include "engine/policy/victims.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "base/limits.h"
#include "engine/policy/job_orders.h"

namespace gpusched::policy {
namespace {

VictimCost plus(const VictimCost& a, const VictimCost& b) {
  return {.spared = a.spared + b.spared,
          .lost_gpu_ms = a.lost_gpu_ms + b.lost_gpu_ms,
          .unsaved_gpu_ms = a.unsaved_gpu_ms + b.unsaved_gpu_ms,
          .remaining_ms = std::max(a.remaining_ms, b.remaining_ms),
          .count = a.count + b.count,
          .priority = std::max(a.priority, b.priority)};
}

constexpr VictimCost kNothing{.remaining_ms = INT64_MIN};

void take(Lack& lack, const VictimView& victim) {
  lack.devices -= victim.devices;
  lack.cpu_milli -= victim.cpu_milli;
  lack.memory_mb -= victim.memory_mb;
  lack.attempts -= 1;
}

void give_back(Lack& lack, const VictimView& victim) {
  lack.devices += victim.devices;
  lack.cpu_milli += victim.cpu_milli;
  lack.memory_mb += victim.memory_mb;
  lack.attempts += 1;
}

int64_t gpus_of(const State& state, const Job& job) { return state.held_by(job).gpus; }

/// From when on the running job's level is behind the one's that would end it; kNever: it will not be.
Time behind_from(const State& state, const Job& job, const Attempt& attempt, const Job& by) {
  if (!ends_by_attained(state)) return kNever;
  const std::vector<int64_t>& levels = state.config.policy.attained_levels;
  const auto level = static_cast<std::size_t>(attained_level(levels, by.attained_gpu_ms));
  const int64_t gpus = gpus_of(state, job);
  if (level >= levels.size()) return kNever;
  const int64_t missing_gpu_ms = levels[level] * 1000 - job.attained_gpu_ms;
  if (missing_gpu_ms <= 0) return attempt.placed_at;
  if (gpus == 0) return kNever;
  return attempt.placed_at + milliseconds((missing_gpu_ms + gpus - 1) / gpus);
}

std::vector<uint32_t> indexes_of(uint64_t set) {
  std::vector<uint32_t> indexes;
  for (uint64_t bits = set; bits != 0; bits &= bits - 1)
    indexes.push_back(static_cast<uint32_t>(std::countr_zero(bits)));
  return indexes;
}

/// The set that costs least among all that suffice.
std::optional<uint64_t> cheapest_set(const Lack& lack, const std::vector<VictimView>& candidates,
                                     const std::vector<VictimCost>& costs, const VictimLimit& limit) {
  std::optional<uint64_t> chosen;
  VictimCost best = kNothing;
  for (uint64_t set = 1; set < uint64_t{1} << candidates.size(); ++set) {
    Lack rest = lack;
    VictimCost cost = kNothing;
    for (uint64_t bits = set; bits != 0; bits &= bits - 1) {
      const auto index = static_cast<std::size_t>(std::countr_zero(bits));
      take(rest, candidates[index]);
      cost = plus(cost, costs[index]);
    }
    if (!rest.none() || (chosen.has_value() && !(cost < best))) continue;
    if (limit && !limit(indexes_of(set))) continue;
    best = cost;
    chosen = set;
  }
  return chosen;
}

/// The cheapest first until they suffice, then without those that are not needed.
std::optional<uint64_t> cheapest_first(const Lack& lack, const std::vector<VictimView>& candidates,
                                       const std::vector<VictimCost>& costs, const VictimLimit& limit) {
  std::vector<uint32_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return costs[a] != costs[b] ? costs[a] < costs[b] : a < b; });
  Lack left = lack;
  std::vector<uint32_t> taken;
  for (const uint32_t index : order) {
    if (left.none()) break;
    taken.push_back(index);
    if (limit && !limit(taken)) {
      taken.pop_back();
      continue;
    }
    take(left, candidates[index]);
  }
  if (!left.none()) return std::nullopt;
  uint64_t chosen = 0;
  for (auto it = taken.rbegin(); it != taken.rend(); ++it) {
    Lack without = left;
    give_back(without, candidates[*it]);
    if (without.none()) {
      left = without;
    } else {
      chosen |= uint64_t{1} << *it;
    }
  }
  return chosen;
}

}  // namespace

bool ends_by_attained(const State& state) {
  const SchedulingPolicy& policy = state.config.policy;
  return policy.preempt_by_attained && policy.job_order == "least_attained";
}

int64_t standing_of(const State& state, const Job& job, Time now) {
  constexpr auto kLevels = static_cast<int64_t>(limits::kAttainedLevelsMax) + 1;
  const int64_t by_priority = effective_priority(state, job) * kLevels;
  if (!ends_by_attained(state)) return by_priority;
  int64_t gpu_ms = job.attained_gpu_ms;
  const Attempt* attempt = state.find_attempt(job.id, job.attempt_count);
  if (attempt != nullptr && !attempt->abandoned)
    gpu_ms += gpus_of(state, job) * std::max(now - attempt->placed_at, Duration{}).ms();
  return by_priority - attained_level(state.config.policy.attained_levels, gpu_ms);
}

int64_t effective_priority(const State& state, const Job& job) {
  const Tenant* tenant = state.find_tenant(job.tenant);
  CHECK(tenant != nullptr);
  return int64_t{job.priority} + tenant->priority_tier;
}

Potential potential_of(const State& state) {
  Potential potential{.idle = guarantees::idle_of(state), .waiting = {}};
  state.jobs.for_each([&](const Job& job) {
    const bool waits = job.state == JobState::kPending && !job.promised;
    if (waits || job.state == JobState::kPreempted)
      ++potential.waiting[standing_of(state, job, state.last.at)];
    return true;
  });
  return potential;
}

bool potential_less(const Potential& a, const Potential& b) {
  if (a.idle != b.idle) return a.idle < b.idle;
  auto left = a.waiting.rbegin();
  auto right = b.waiting.rbegin();
  for (; left != a.waiting.rend() && right != b.waiting.rend(); ++left, ++right) {
    // A job on a higher level counts more.
    if (left->first != right->first) return left->first < right->first;
    if (left->second != right->second) return left->second < right->second;
  }
  return left == a.waiting.rend() && right != b.waiting.rend();
}

Time LeastLost::protected_until(const Job& job, const Attempt& attempt) const {
  const Time started = attempt.started_at + params_.protection;
  return job.extras->preempted_at.valid() ? std::max(started, job.extras->preempted_at + params_.recent)
                                          : started;
}

Time LeastLost::allowed_from(const State& state, const Job& by, const Attempt& attempt) const {
  if (attempt.abandoned || attempt.stop != StopReason::kNone || !attempt.started_at.valid()) return kNever;
  const Job* job = state.jobs.find(attempt.job);
  if (job == nullptr || job->preemption_exempt || job->extras->preempt_count >= params_.budget) return kNever;
  const Tenant* owner = state.find_tenant(job->tenant);
  const Tenant* other = state.find_tenant(by.tenant);
  CHECK(owner != nullptr);
  CHECK(other != nullptr);
  if (!owner->allow_preemption || !other->can_preempt_others) return kNever;
  // Anybody may make such a tenant, with any tier and this flag.
  if (other->anonymous && !owner->anonymous) return kNever;
  const int64_t theirs = effective_priority(state, *job);
  const int64_t ours = effective_priority(state, by);
  if (theirs > ours) return kNever;
  const Time behind = theirs < ours ? Time{} : behind_from(state, *job, attempt, by);
  if (behind == kNever) return kNever;
  return std::max(protected_until(*job, attempt), behind);
}

bool LeastLost::reclaimable(const State& state, const Attempt& attempt) const {
  if (attempt.abandoned || attempt.stop != StopReason::kNone) return false;
  const Job* job = state.jobs.find(attempt.job);
  return job != nullptr && !job->preemption_exempt;
}

bool LeastLost::spared(const State& state, const Attempt& attempt, Time now) const {
  const Job* job = state.jobs.find(attempt.job);
  CHECK(job != nullptr);
  return !attempt.started_at.valid() || job->extras->preempt_count >= params_.budget ||
         now < protected_until(*job, attempt);
}

VictimCost LeastLost::cost_of(const VictimView& victim, Time now) const {
  const Time started = victim.attempt->started_at.valid() ? victim.attempt->started_at : now;
  const Time saved = victim.job->extras->saved_at;
  const bool silent = !saved.valid() || saved < started;
  const Duration unsaved = std::max(now - (silent ? started : saved), Duration{});
  const Duration counted = std::min(unsaved, silent ? params_.silent_max : params_.loss_max);
  return {.spared = victim.spared ? 1 : 0,
          .lost_gpu_ms = victim.gpus * counted.ms(),
          .unsaved_gpu_ms = victim.gpus * unsaved.ms(),
          .remaining_ms = -std::max(victim.end - now, Duration{}).ms(),
          .count = 1,
          .priority = victim.priority};
}

std::optional<VictimChoice> LeastLost::choose(const Lack& lack, const std::vector<VictimView>& candidates,
                                              Time now, const VictimLimit& limit) const {
  std::vector<VictimCost> costs;
  costs.reserve(candidates.size());
  Lack left = lack;
  for (const VictimView& candidate : candidates) {
    costs.push_back(cost_of(candidate, now));
    take(left, candidate);
  }
  if (!left.none() || lack.none()) return std::nullopt;
  const std::optional<uint64_t> chosen = candidates.size() <= kExactMax
                                             ? cheapest_set(lack, candidates, costs, limit)
                                             : cheapest_first(lack, candidates, costs, limit);
  if (!chosen.has_value()) return std::nullopt;
  VictimChoice choice{.chosen = indexes_of(*chosen), .cost = kNothing};
  for (const uint32_t index : choice.chosen) choice.cost = plus(choice.cost, costs[index]);
  return choice;
}

}  // namespace gpusched::policy
