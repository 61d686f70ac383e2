#include "host/forecast/learned_run_times.h"

#include <algorithm>

#include "base/overloaded.h"
#include "engine/policy/policies.h"
#include "predict/questions.h"

namespace gpusched {
namespace {

/// Finished jobs looked at when a scheduler starts: 0.2 s.
constexpr std::size_t kBeginMax = 20'000;

bool uses_limits(const State& state) { return state.config.policy.run_times == "limits"; }

}  // namespace

Duration expected_to_pass(const predict::RunTimes& expected, const State& state, const Job& job, Time now) {
  if (expected.empty() || uses_limits(state)) return policy::LimitRunTimes().to_pass(state, job, now);
  return milliseconds(expected.quantile_ms(predict::to_pass_per_mille(job.max_runtime)));
}

Duration expected_of_running(const predict::RunTimes& expected, const State& state, const Job& job,
                             Duration elapsed, Time now) {
  std::optional<int64_t> run_ms;
  if (!uses_limits(state)) run_ms = expected.quantile_after_ms(elapsed.ms(), predict::kOfRunning);
  if (run_ms.has_value()) return milliseconds(*run_ms);
  return policy::LimitRunTimes().of_running(state, job, elapsed, now);
}

Duration expected_to_order(const predict::RunTimes& expected, const State& state, const Job& job,
                           Duration attained, Time now) {
  std::optional<int64_t> run_ms;
  if (!uses_limits(state)) run_ms = expected.quantile_after_ms(attained.ms(), predict::kToOrder);
  if (run_ms.has_value()) return milliseconds(*run_ms);
  return policy::LimitRunTimes().to_order(state, job, attained, now);
}

const predict::RunTimes& LearnedRunTimes::remembered(const State& state, const Job& job, Time now) const {
  static const predict::RunTimes kNothing;
  if (uses_limits(state)) return kNothing;
  return predictions_.of(predictor_, facts_.facts_of(state, job), now.ms());
}

Duration LearnedRunTimes::to_pass(const State& state, const Job& job, Time now) const {
  return expected_to_pass(remembered(state, job, now), state, job, now);
}

Duration LearnedRunTimes::of_running(const State& state, const Job& job, Duration elapsed, Time now) const {
  return expected_of_running(remembered(state, job, now), state, job, elapsed, now);
}

Duration LearnedRunTimes::to_order(const State& state, const Job& job, Duration attained, Time now) const {
  return expected_to_order(remembered(state, job, now), state, job, attained, now);
}

void LearnedRunTimes::started(const State& state, const Job& job) {
  Said said{.facts = facts_.facts_of(state, job), .tenant = job.tenant};
  const predict::RunTimes known = expected(said.facts, job.started_at);
  said.p50_ms = known.quantile_ms(500);
  said.p90_ms = known.quantile_ms(900);
  predictor_.started(said.facts, job.started_at.ms());
  running_[job.id.value] = said;
}

void LearnedRunTimes::ended(uint64_t job, Time started_at, Time at, bool by_itself) {
  const auto found = running_.find(job);
  if (found == running_.end()) return;
  const Said said = found->second;
  running_.erase(found);
  if (!by_itself || !started_at.valid() || at < started_at) return predictor_.left(said.facts);
  const int64_t run_ms = (at - started_at).ms();
  predictor_.finished(said.facts, run_ms, at.ms());
  if (said.p90_ms == 0) return;  // Nothing was known.
  quality_.add(said.p50_ms, said.p90_ms, run_ms);
  const bool own = by_tenant_.contains(said.tenant) || by_tenant_.size() < kQualityTenantsMax;
  by_tenant_[own ? said.tenant : TenantId{}].add(said.p50_ms, said.p90_ms, run_ms);
}

void LearnedRunTimes::begin(const State& state) {
  const std::size_t count = std::min(state.finished.size(), kBeginMax);
  for (std::size_t i = state.finished.size() - count; i < state.finished.size(); ++i) {
    const Job* job = state.jobs.find(state.finished[i]);
    if (job == nullptr || !job->started_at.valid() || job->state == JobState::kCancelled) continue;
    const predict::JobFacts facts = facts_of(state, *job);
    predictor_.finished(facts, (job->ended_at - job->started_at).ms(), job->ended_at.ms());
  }
  for (const auto& [key, attempt] : state.attempts) {
    const Job* job = state.jobs.find(attempt.job);
    if (job != nullptr && !attempt.abandoned && attempt.started_at.valid()) started(state, *job);
  }
}

void LearnedRunTimes::observe(const State& state, const Event& event) {
  std::visit(
      Overloaded{
          [&](const MemberStarted& start) {
            const Job* job = state.jobs.find(start.job);
            if (job != nullptr && job->state == JobState::kRunning && job->started_at == start.at)
              started(state, *job);
          },
          [&](const JobFinished& finished) {
            facts_.forget(finished.job);
            const Job* job = state.jobs.find(finished.job);
            const EndCause cause = finished.outcome.cause;
            const bool by_itself = cause == EndCause::kExited || cause == EndCause::kSignaled ||
                                   cause == EndCause::kTimeout || cause == EndCause::kOutOfMemory ||
                                   cause == EndCause::kOverLimit;
            ended(finished.job.value, job == nullptr ? Time{} : job->started_at, finished.at,
                  by_itself && finished.state != JobState::kCancelled);
          },
          [&](const JobRequeued& requeued) { ended(requeued.job.value, {}, {}, /*by_itself=*/false); },
          Ignores<Configured, TenantCreated, TenantUpdated, TenantDeleted, NodeRegistered, NodeStateChanged,
                  DeviceConditionChanged, JobSubmitted, RequestRemembered, OldestRequestForgotten,
                  AttemptPlaced, StopRequested, MemberEnded, AttemptAbandoned, BackoffEnded, JobsForgotten,
                  DeviceFreed, DeviceOccupied, DeviceQuarantined, TimerDropped, JobUpdated, JobHoldChanged,
                  NodeAvailabilityChanged, NodeLabeled, NodeFailureNoted, TimeSkipped, DeviceBarred,
                  DependencySettled, ElementAdded, ArrayClosed, DevicesPromised, PromiseEnded,
                  JobCheckpointed, Admitted, BookingMade, BookingBegan, BookingEnded, ShareFreed,
                  DeviceHeatChanged, MemberPrepared, DeviceFaultChanged, NodeSuspected,
                  WatchdogFindingChanged, ElementUnparked, RequestForgotten, NodeRemoved, TenantsForgotten,
                  JobAsked, KeyCreated, KeyRevoked, RoleBound, KeyForgotten, NodeTicketCreated,
                  NodeTicketForgotten, NodeAdmitted, NodeRenewed, NodeRevoked, PersonRecorded>{}},
      event);
}

}  // namespace gpusched
