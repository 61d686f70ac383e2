#include <algorithm>

#include "base/limits.h"
#include "engine/decide/decide.h"

namespace gpusched::rules {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kLongest = limits::kRuntimeMax.ns;
constexpr int64_t kThrottledMilli = 1'000;

/// How long `amount` takes at `rate_milli` thousandths a second; at most kLongest.
Duration takes(int64_t amount, int64_t rate_milli) {
  const int64_t each = std::max<int64_t>(1000 * kNsPerSecond / rate_milli, 1);
  return Duration{amount > kLongest / each ? kLongest : amount * each};
}

Rejection refuse(RejectionCode code, int64_t requested, int64_t limit, int64_t current, Duration wait) {
  return {.code = code, .requested = requested, .limit = limit, .current = current, .retry_after = wait};
}

int64_t cost_of(const AdmissionPolicy& policy, const SubmitJobs& command) {
  int64_t cost = 0;
  for (const JobRequest& job : command.jobs) {
    const auto priced = std::find_if(policy.costs.begin(), policy.costs.end(),
                                     [&](const TaskCost& one) { return one.type == job.task_type; });
    const int64_t each = priced == policy.costs.end() ? 1 : priced->tokens;
    cost += each * std::max<int64_t>(int64_t{job.sequence_count()} - 1, 1);
  }
  return cost;
}

/// The bucket: a submission passes when its tokens are there. One that costs more than the whole bucket
/// passes when that is full, and is paid for afterwards: else it could never pass.
std::optional<Rejection> spend(const AdmissionPolicy& policy, int64_t cost, Time at, Submitter& user) {
  if (policy.rate_milli <= 0) return std::nullopt;
  const Time full_at = std::max(user.full_at, at) + takes(cost, policy.rate_milli);
  const Duration depth = takes(std::max<int64_t>(policy.burst, 1), policy.rate_milli);
  if (full_at > at + depth && user.full_at > at) {
    const Time possible_at = std::min(full_at - depth, user.full_at);
    return refuse(RejectionCode::kRateExceeded, cost, policy.rate_milli, policy.burst, possible_at - at);
  }
  user.full_at = std::min(full_at, limits::kTimeMax);
  return std::nullopt;
}

std::optional<Rejection> spend_of_day(const AdmissionPolicy& policy, int64_t cost, Time at, Submitter& user) {
  if (policy.daily <= 0) return std::nullopt;
  const int64_t today = Submitter::day_of(at);
  if (user.day != today) user.day = today, user.spent = 0;
  if (cost > policy.daily - user.spent) {
    const Time midnight{(today + 1) * Submitter::kDay.ns};
    return refuse(RejectionCode::kDailyExceeded, cost, policy.daily, user.spent, midnight - at);
  }
  user.spent += cost;
  return std::nullopt;
}

/// The tenant, or one above it, of which no more jobs may wait.
std::optional<Rejection> tenant_queue_full(const State& state, TenantId tenant, int64_t jobs) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    const int64_t limit = at->limits.waiting();
    const int64_t waiting = state.waiting_count(*at);
    if (jobs <= limit - waiting) continue;
    const Duration wait = jobs > limit ? Duration{} : limits::kQueueFullRetry;
    Rejection refusal = refuse(RejectionCode::kTenantQueueFull, jobs, limit, waiting, wait);
    refusal.tenant = at->id;
    return refusal;
  }
  return std::nullopt;
}

/// Why the user's jobs come in one by one, if they do: of all jobs, or of a tenant's and its children's, more
/// wait than its soft limit.
std::optional<Rejection> crowd(const State& state, TenantId tenant, int64_t jobs) {
  const AdmissionPolicy& policy = state.config.admission;
  if (policy.soft_queue > 0 && state.waiting_count() + jobs > policy.soft_queue)
    return refuse(RejectionCode::kThrottled, jobs, policy.soft_queue, state.waiting_count(), {});
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    const int64_t limit = at->limits.soft_waiting();
    const int64_t waiting = state.waiting_count(*at);
    if (jobs <= limit - waiting) continue;
    Rejection refusal = refuse(RejectionCode::kTenantThrottled, jobs, limit, waiting, {});
    refusal.tenant = at->id;
    return refusal;
  }
  return std::nullopt;
}

std::optional<Rejection> throttle(const State& state, TenantId tenant, int64_t jobs, Time at,
                                  Submitter& user) {
  std::optional<Rejection> refusal = crowd(state, tenant, jobs);
  if (!refusal) return std::nullopt;
  if (user.next_at > at) {
    refusal->retry_after = user.next_at - at;
    return refusal;
  }
  // Where admission is off, its rate is not known here.
  const int64_t unknown = refusal->code == RejectionCode::kThrottled ? 1 : kThrottledMilli;
  const int64_t rate = state.config.admission.throttled_milli;
  user.next_at = std::min(at + takes(jobs, rate > 0 ? rate : unknown), limits::kTimeMax);
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> admit(const State& state, const SubmitJobs& command, int64_t jobs, Time at,
                               Events& events) {
  if (state.waiting_count() + jobs > state.config.queue_size_max) {
    return refuse(RejectionCode::kQueueFull, jobs, state.config.queue_size_max, state.waiting_count(),
                  limits::kQueueFullRetry);
  }
  if (auto full = tenant_queue_full(state, command.tenant, jobs)) return full;
  const AdmissionPolicy& policy = state.config.admission;
  if (!policy.active() && !crowd(state, command.tenant, jobs)) return std::nullopt;
  const Submitter* known = state.find_submitter(command.tenant, command.user);
  Submitter user = known != nullptr ? *known : Submitter{.tenant = command.tenant, .user = command.user};
  const int64_t cost = cost_of(policy, command);
  std::optional<Rejection> refusal = throttle(state, command.tenant, jobs, at, user);
  if (!refusal) refusal = spend(policy, cost, at, user);
  if (!refusal) refusal = spend_of_day(policy, cost, at, user);
  if (refusal) return refusal;
  if (user.forgettable_at() > at) events.push_back(Admitted{.submitter = std::move(user), .at = at});
  return std::nullopt;
}

}  // namespace gpusched::rules
