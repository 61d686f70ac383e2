#include "engine/decide/note_job.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace gpusched {
namespace {

std::string names_of(const std::vector<Preemption>& jobs) {
  std::string names;
  for (const Preemption& one : jobs)
    names += (names.empty() ? "job-" : ", job-") + std::to_string(one.job.value);
  return names;
}

/// As versions before feature level 7 kept a move: as the sentence that they showed.
std::string move_sentence(const Promise& promise, const Node* from, const Node& to) {
  std::string text;
  if (promise.moves) {
    text = "moved from node " + (from == nullptr ? std::string("?") : from->name) + " to node " + to.name +
           " so that job-" + std::to_string(promise.moved_for.value) + " can start";
  } else {
    text = names_of(promise.victims) + " moved away from node " + to.name + " for it";
  }
  text += ", by " + promise.moved_by;
  if (!promise.moved_why.empty()) text += ": " + promise.moved_why;
  return text;
}

void note(const State& state, Job& job, JobHistoryEntry entry) {
  if (state.config.feature_level < 7) return;
  entry.attempt = job.attempt_count;
  job.note(entry);
}

void note_end(const State& state, Job& job, const Outcome& outcome, Time at) {
  if (outcome.cause == EndCause::kNone) return;
  note(state, job,
       {.step = JobStep::kEnded,
        .at = at,
        .cause = outcome.cause,
        .exit_code = outcome.exit_code,
        .signal = outcome.signal,
        .detail = outcome.detail,
        .usage = job.last_usage()});
}

}  // namespace

void note_move(State& state, const Promise& promise) {
  Job& job = state.job_at(promise.job);
  const Node& to = state.node_at(promise.members.front().node);
  const Node* from = state.find_node(job.node);  // It may have been removed since.
  job.extras.set(&JobExtras::moved_at, promise.since);
  if (state.config.feature_level < 7) {
    job.extras.set(&JobExtras::move_detail, Blob(move_sentence(promise, from, to)));
    return;
  }
  MoveRecord record{.moved = promise.moves,
                    .from = promise.moves && from != nullptr ? from->name : std::string(),
                    .to = to.name,
                    .others = {},
                    .by = promise.moved_by,
                    .why = promise.moved_why};
  if (promise.moves) record.others.push_back(promise.moved_for);
  for (const Preemption& victim : promise.victims) record.others.push_back(victim.job);
  job.set_move_record(record);
}

void note_submitted(State& state, Job& job, const JobSubmitted& event) {
  job.require_feasible = state.config.feature_level >= 10 && event.request.require_feasible;
  if (state.config.feature_level >= 11)
    job.preempt_grace_ms = static_cast<int32_t>(event.request.preempt_grace.ms());
  job.submitted_at = event.at;
  job.owner = state.owners.acquire(event.owner_kind, event.owner);
  if (state.config.feature_level < 8 || event.by.empty()) return;
  // Jobs of one submission share the text.
  const Job* const before = state.jobs.find(JobId{event.job.value - 1});
  const bool same = before != nullptr && before->submitted_by.view() == event.by;
  job.submitted_by = same ? before->submitted_by : Blob(event.by);
}

void note_remembered(State& state, const RequestRemembered& event) {
  RememberedRequest request = *event.request;
  request.owner = state.owners.acquire(event.owner_kind, event.owner);
  state.remember(std::move(request));
}

void note_placed(const State& state, Job& job, const AttemptPlaced& event) {
  const std::vector<Part>& parts = state.class_of(job).parts;
  job.given_gpu_memory_mb =
      state.config.feature_level >= 10 ? state.given_gpu_memory(parts, event.members) : 0;
  note(state, job,
       {.step = JobStep::kPlaced,
        .at = event.at,
        .node = event.members.front().node,
        .members = static_cast<uint32_t>(event.members.size())});
}

void note_step(const State& state, Job& job, JobStep step, Time at) {
  note(state, job, {.step = step, .at = at});
}

void note_requeued(State& state, Job& job, const JobRequeued& event) {
  note_end(state, job, event.outcome, event.at);
  const JobStep step = event.preempted ? JobStep::kPreempted
                       : event.hold    ? JobStep::kHeldByFailure
                                       : JobStep::kRequeued;
  note(state, job, {.step = step, .at = event.at, .until = event.not_before});
  if (state.config.feature_level < 10) return;
  state.charge_move(job, event.at);
  const bool displaced =
      event.preempted || (event.free_of_charge && !is_no_fault_of_job(event.outcome.cause));
  const bool began = job.started_at.valid() || job.ever_started;
  // It began in time; that others took its place is not to end it.
  if (displaced && began && !job.interactive) state.set_deadline(job, {});
}

void note_finished(const State& state, Job& job, const JobFinished& event) {
  if (job.state != JobState::kPending) note_end(state, job, event.outcome, event.at);
  note(state, job,
       {.step = JobStep::kFinished, .at = event.at, .state = event.state, .reason = event.reason});
}

void note_asked(const State& state, Job& job, const JobAsked& event) {
  note(state, job, {.step = event.step, .at = event.at, .by = event.by});
}

}  // namespace gpusched
