#include <algorithm>

#include "base/limits.h"
#include "engine/decide.h"

namespace gpusched::rules {
namespace {

TimerDropped dropped(const Timer& timer) {
  return {.due = timer.due, .kind = static_cast<uint32_t>(timer.kind), .id = timer.id, .extra = timer.extra};
}

void node_lost(const State& state, const Timer& timer, Events& events) {
  const Node* node = state.find_node(NodeId{timer.id});
  CHECK(node != nullptr);
  if (node->state != NodeState::kUnreachable) return;
  events.push_back(NodeStateChanged{.node = node->id, .to = NodeState::kLost, .at = timer.due});
  // Jobs that allow overlap go on elsewhere although the old attempt may still run.
  const Outcome lost{.cause = EndCause::kNodeLost, .detail = "the node is lost; the job allows overlap"};
  for (const AttemptKey& key : node->attempts) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    CHECK(attempt != nullptr);
    const Job* job = state.jobs.find(key.job);
    if (attempt->abandoned || job == nullptr || !job->retry.overlap_allowed) continue;
    const Time at = state.config.feature_level >= 2 ? timer.due : Time{};
    events.push_back(AttemptAbandoned{.job = key.job, .attempt = key.attempt, .at = at});
    conclude(state, *job, attempt->stop, lost, timer.due, events);
  }
}

void contact_lost(const State& state, const Timer& timer, Events& events) {
  const Attempt* attempt = state.find_attempt(JobId{timer.id}, timer.extra);
  if (attempt == nullptr || attempt->abandoned) return;
  for (uint32_t i = 0; i < attempt->members.size(); ++i) {
    if (attempt->members[i].state == MemberState::kEnded) continue;
    const Node* node = state.find_node(attempt->members[i].node);
    CHECK(node != nullptr);
    if (node->state == NodeState::kReady) continue;
    const Job* job = state.jobs.find(attempt->job);
    CHECK(job != nullptr);
    // A node that came back and fell silent again has a later timer.
    if (node->silent_since + job->retry.kill_after_lost_contact + limits::kContactSlack != timer.due)
      continue;
    const Outcome lost{.cause = EndCause::kContactLost,
                       .detail = "its shim ended it after too long without contact"};
    end_member(state, *attempt, i, lost, false, timer.due, events);
    return;
  }
}

void runtime_over(const State& state, const Timer& timer, Events& events) {
  const Attempt* attempt = state.find_attempt(JobId{timer.id}, timer.extra);
  if (attempt == nullptr || attempt->stop != StopReason::kNone) return;
  events.push_back(
      StopRequested{.job = attempt->job, .attempt = attempt->number, .reason = StopReason::kTimeout});
}

}  // namespace

bool next_due(const State& state, Time now, Events& events) {
  if (!state.timers.empty() && state.timers.begin()->due <= now) {
    const Timer& timer = *state.timers.begin();
    switch (timer.kind) {
      case TimerKind::kBackoffOver:
        events.push_back(BackoffEnded{.job = JobId{timer.id}});
        return true;
      case TimerKind::kNodeLost:
        node_lost(state, timer, events);
        break;
      case TimerKind::kContactLost:
        contact_lost(state, timer, events);
        break;
      case TimerKind::kRuntimeOver:
        runtime_over(state, timer, events);
        break;
    }
    events.push_back(dropped(timer));
    return true;
  }
  if (!state.requests.empty()) {
    const bool expired = state.expiry(state.requests.front().at, limits::kRequestKeysKept) <= now;
    if (expired || static_cast<int64_t>(state.requests.size()) > limits::kRequestKeysMax) {
      events.push_back(OldestRequestForgotten{.count = 1});
      return true;
    }
  }
  if (state.finished.empty()) return false;
  const Job* oldest = state.jobs.find(state.finished.front());
  CHECK(oldest != nullptr);
  const bool expired = state.expiry(oldest->ended_at, state.config.finished_jobs_kept) <= now;
  if (!expired && static_cast<int64_t>(state.finished.size()) <= state.config.finished_jobs_max) return false;
  events.push_back(JobsForgotten{.count = 1});
  return true;
}

Applied note_start(const State& state, Stamp stamp, Events& events) {
  const Duration span = stamp.at - state.last.at;
  if (span.ns > 0) events.push_back(TimeSkipped{.span = span, .at = stamp.at});
  return accept();
}

}  // namespace gpusched::rules
