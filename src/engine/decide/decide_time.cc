#include <algorithm>

#include "base/limits.h"
#include "engine/decide/decide.h"

namespace gpusched::rules {
namespace {

TimerDropped dropped(const Timer& timer) {
  return {.due = timer.due, .kind = static_cast<uint32_t>(timer.kind), .id = timer.id, .extra = timer.extra};
}

/// A parent ended: what that means for one of those that wait for it.
void settle(const State& state, const Dependent& dependent, Time now, Events& events) {
  const Job* parent = state.jobs.find(dependent.parent);
  const Job* child = state.jobs.find(dependent.child);
  CHECK(child != nullptr);
  const std::vector<JobDependency> list = child->dependency_list();
  const auto one = std::find_if(list.begin(), list.end(),
                                [&](const JobDependency& entry) { return entry.parent == dependent.parent; });
  CHECK(one != list.end());
  const bool met =
      one->kind == DependencyKind::kAfterAny ||
      (one->kind == DependencyKind::kAfterOk && parent != nullptr && parent->state == JobState::kCompleted);
  if (met || child->on_parent_failure == OnParentFailure::kWait) {
    events.push_back(DependencySettled{.job = child->id, .parent = dependent.parent, .met = met});
    return;
  }
  if (child->is_array()) {
    events.push_back(DependencySettled{.job = child->id, .parent = dependent.parent, .met = false});
    events.push_back(ArrayClosed{.job = child->id, .reason = JobReason::kDependency, .at = now});
    for (const JobId parked : state.array_at(child->id).parked) {
      events.push_back(JobFinished{.job = parked,
                                   .state = JobState::kCancelled,
                                   .reason = JobReason::kDependency,
                                   .outcome = {},
                                   .at = now});
    }
    return;
  }
  const std::string_view how = parent == nullptr ? "ended" : to_string(parent->state);
  const std::string detail = "job-" + std::to_string(dependent.parent.value) + " " + std::string(how) +
                             (one->kind == DependencyKind::kAfterStart ? " before it started" : "");
  events.push_back(JobFinished{.job = child->id,
                               .state = JobState::kCancelled,
                               .reason = JobReason::kDependency,
                               .outcome = {.detail = detail, .keep_detail = true},
                               .at = now});
}

/// Makes its next element a job, or ends it behind the last one.
void go_on_with_array(const State& state, const JobArray& array, Time now, Events& events) {
  if (const std::optional<JobId> next = state.next_element(array)) {
    if (array.parked.contains(*next)) {
      events.push_back(ElementUnparked{.job = *next});
    } else {
      events.push_back(ElementAdded{.job = *next, .array = array.id, .at = now});
    }
    return;
  }
  JobFinished over{
      .job = array.id, .state = JobState::kCompleted, .reason = JobReason::kSucceeded, .at = now};
  const auto end = [&](JobState how_it_ended, JobReason reason, int64_t count, const char* how) {
    over.state = how_it_ended;
    over.reason = reason;
    over.outcome.detail =
        std::to_string(count) + " of its " + std::to_string(array.count) + " elements " + how;
    over.outcome.keep_detail = true;
  };
  if (array.closed == JobReason::kCancelled || array.closed == JobReason::kDependency) {
    end(JobState::kCancelled, array.closed, array.cancelled, "were cancelled");
  } else if (array.failed > 0) {
    end(JobState::kFailed, array.closed == JobReason::kDeadline ? array.closed : JobReason::kElements,
        array.failed, "failed");
  } else if (array.cancelled > 0) {
    end(JobState::kCancelled, JobReason::kElements, array.cancelled, "were cancelled");
  }
  events.push_back(std::move(over));
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
    if (attempt->is_gang() && job->retry.tolerates_node_loss) continue;  // Its other members go on.
    // A gang is abandoned once for all its members here, which stand side by side.
    const AttemptKey begin{.job = key.job, .attempt = key.attempt};
    if (*std::lower_bound(node->attempts.begin(), node->attempts.end(), begin) != key) continue;
    const Time at = state.config.feature_level >= 2 ? timer.due : Time{};
    events.push_back(AttemptAbandoned{.job = key.job, .attempt = key.attempt, .at = at});
    conclude(state, *job, attempt->stop, lost, timer.due, events);
  }
}

void contact_lost(const State& state, const Timer& timer, Events& events) {
  const Attempt* attempt = state.find_attempt(JobId{timer.id}, timer.extra);
  if (attempt == nullptr || attempt->abandoned) return;
  MemberEnds ends(state, timer.due, events);
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
    ends.end(*attempt, i, lost, false);
    if (!job->retry.tolerates_node_loss) return;
  }
}

void runtime_over(const State& state, const Timer& timer, Events& events) {
  const Attempt* attempt = state.find_attempt(JobId{timer.id}, timer.extra);
  if (attempt == nullptr || attempt->stop != StopReason::kNone) return;
  events.push_back(
      StopRequested{.job = attempt->job, .attempt = attempt->number, .reason = StopReason::kTimeout});
}

/// A node that the job avoided may be chosen for it again. Of a job that does not wait, its next requeue says
/// so.
void avoid_over(const State& state, const Timer& timer, Events& events) {
  const Job* job = state.jobs.find(JobId{timer.id});
  if (job != nullptr && job->state == JobState::kPending) avoid_nodes(state, *job, {}, timer.due, events);
}

}  // namespace

void settle_start(const State& state, JobId job, Events& events) {
  for (auto at = state.dependents.lower_bound({.parent = job, .child = {}});
       at != state.dependents.end() && at->parent == job; ++at) {
    const Job* child = state.jobs.find(at->child);
    CHECK(child != nullptr);
    const std::vector<JobDependency> list = child->dependency_list();
    const bool waits = std::any_of(list.begin(), list.end(), [&](const JobDependency& one) {
      return one.parent == job && one.kind == DependencyKind::kAfterStart;
    });
    if (waits) events.push_back(DependencySettled{.job = at->child, .parent = job, .met = true});
  }
}

namespace {

/// A job that still waits at its deadline fails, an array expands no further. True: an event takes the timer
/// away.
bool deadline_passed(const State& state, const Timer& timer, Events& events) {
  const Job& job = state.job_at(JobId{timer.id});
  if (job.state != JobState::kPending) return false;  // It runs; another attempt will not begin.
  if (job.is_array()) {
    events.push_back(ArrayClosed{.job = job.id, .reason = JobReason::kDeadline, .at = timer.due});
    return false;
  }
  events.push_back(JobFinished{.job = job.id,
                               .state = JobState::kFailed,
                               .reason = job.interactive ? JobReason::kNotAtOnce : JobReason::kDeadline,
                               .outcome = {.detail = {}},
                               .at = timer.due});
  return true;
}

/// True: some event takes the timer away. False: it is still to be dropped.
bool timer_due(const State& state, const Timer& timer, Time now, Events& events) {
  switch (timer.kind) {
    case TimerKind::kBackoffOver:
      events.push_back(BackoffEnded{.job = JobId{timer.id}});
      return true;
    case TimerKind::kDeadline:
      return deadline_passed(state, timer, events);
    case TimerKind::kNodeLost:
      node_lost(state, timer, events);
      return false;
    case TimerKind::kContactLost:
      contact_lost(state, timer, events);
      return false;
    case TimerKind::kRuntimeOver:
      runtime_over(state, timer, events);
      return false;
    case TimerKind::kAvoidOver:
      avoid_over(state, timer, events);
      return false;
    case TimerKind::kBooking:
      booking_due(state, timer, now, events);
      return true;
    case TimerKind::kPromiseOver:
      events.push_back(PromiseEnded{.job = JobId{timer.id}, .why = PromiseEnd::kTime, .at = timer.due});
      return true;
  }
  UNREACHABLE();
}

}  // namespace

bool next_due(const State& state, Time now, Events& events) {
  if (const Dependent* dependent = state.next_settling()) {
    settle(state, *dependent, now, events);
    return true;
  }
  if (!state.due_arrays.empty()) {
    go_on_with_array(state, state.array_at(*state.due_arrays.begin()), now, events);
    return true;
  }
  if (!state.timers.empty() && state.timers.begin()->due <= now) {
    const Timer& timer = *state.timers.begin();
    if (!timer_due(state, timer, now, events)) events.push_back(dropped(timer));
    return true;
  }
  if (!state.requests.empty()) {
    const bool expired = state.expiry(state.requests.begin()->second.at, limits::kRequestKeysKept) <= now;
    const bool too_many = static_cast<int64_t>(state.requests.size()) > limits::kRequestKeysMax;
    if (expired || (too_many && state.config.feature_level < 6)) {
      events.push_back(OldestRequestForgotten{.count = 1});
      return true;
    }
    if (too_many) {  // The tenant with most of them makes room: nobody's retries are forgotten for another's
                     // flood.
      events.push_back(RequestForgotten{.tenant = state.most_remembered()});
      return true;
    }
  }
  if (forget_key(state, now, events)) return true;
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
