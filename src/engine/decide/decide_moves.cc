#include <algorithm>

#include "base/limits.h"
#include "engine/decide/decide.h"

// Moves' safety: each job that is moved agreed to be ended for others, has a place of its own that is free,
// and is needed. Which moves are worth it is policy, and not looked at again here.
namespace gpusched::rules {
namespace {

/// The attempt runs on whole devices of one node, and its owner agreed that it may be put back in line.
bool may_move(const State& state, const Job& job, const Attempt& attempt) {
  const Tenant* tenant = state.find_tenant(job.tenant);
  CHECK(tenant != nullptr);
  if (!tenant->allow_preemption || job.preemption_exempt || job.interactive) return false;
  if (job.preemption_mode != PreemptionMode::kRequeue || job.cancel_requested) return false;
  const std::vector<Part>& parts = state.class_of(job).parts;
  return attempt.members.size() == 1 && !is_gang(parts) && !parts.front().is_share() &&
         !parts.front().is_exclusive();
}

bool is_on(const PlanGroup& group, NodeId node) {
  return std::any_of(group.members.begin(), group.members.end(),
                     [&](const MemberPlacement& member) { return member.node == node; });
}

/// The place fits the job beside those that other moved jobs get.
bool place_fits(const State& state, const MoveJobs& command, std::size_t index, const Job& job) {
  const PlanGroup& group = command.groups[index];
  if (group.members.size() != 1 || !group.preemptions.empty()) return false;
  const MemberPlacement& at = group.members.front();
  if (is_on(command.groups.front(), at.node)) return false;
  Given taken{.node = at.node};
  std::size_t others = 0;
  for (std::size_t i = 1; i < index; ++i) {
    const MemberPlacement& other = command.groups[i].members.front();
    if (other.node != at.node) continue;
    if ((other.device_mask & at.device_mask) != 0) return false;
    const Part& part = state.class_of(state.job_at(command.groups[i].job)).parts.front();
    taken.cpu_milli -= part.cpu_milli;
    taken.memory_mb -= part.memory_mb;
    ++others;
  }
  if (!group_fits(state, group, state.class_of(job).parts, {taken})) return false;
  const Node& node = state.node_at(at.node);
  return node.attempts.size() + node.promised_count + others + 1 <= limits::kAttemptsPerNodeMax;
}

/// The job of this move when it holds.
const Job* moved_job(const State& state, const MoveJobs& command, std::size_t index) {
  const PlanGroup& group = command.groups[index];
  const Preemption& ended = command.groups.front().preemptions[index - 1];
  if (group.job != ended.job || group.attempt != ended.attempt + 1) return nullptr;
  const Job* job = state.jobs.find(group.job);
  const Attempt* attempt = state.find_attempt(ended.job, ended.attempt);
  if (job == nullptr || attempt == nullptr || state.find_promise(job->id) != nullptr) return nullptr;
  if (!may_move(state, *job, *attempt)) return nullptr;
  return place_fits(state, command, index, *job) ? job : nullptr;
}

Promise kept_for(const State& state, const MoveJobs& command, std::size_t index, const Job& job, Time at) {
  const PlanGroup& group = command.groups[index];
  const std::vector<Part>& parts = state.class_of(job).parts;
  return Promise{.job = job.id,
                 .tenant = job.tenant,
                 .since = at,
                 .members = members_of(state, group, parts),
                 .victims = {},
                 .amount = {},
                 .work = work_of(parts),
                 .moves = true,
                 .attempt = group.attempt - 1,
                 .moved_for = command.groups.front().job,
                 .moved_by = command.by,
                 .moved_why = command.why};
}

}  // namespace

Applied move_jobs(const State& state, const MoveJobs& command, Stamp stamp, Events& events) {
  const auto stale = [] { return reject(RejectionCode::kMoveStale); };
  if (command.groups.size() < 2 || command.by.empty()) return stale();
  // Nobody is ended for who may not start.
  if (state.config.feature_level >= 10 && state.config.pause.on()) return stale();
  const PlanGroup& gains = command.groups.front();
  if (gains.preemptions.size() + 1 != command.groups.size()) return stale();
  const Job* job = state.jobs.find(gains.job);
  if (job == nullptr || state.find_promise(job->id) != nullptr) return stale();
  if (!job->is_queued() || gains.attempt != job->attempt_count + 1) return stale();
  if (state.promises.size() + command.groups.size() > limits::kPromisesMax) return stale();
  Events found;
  std::vector<Promise> kept;
  for (std::size_t i = 1; i < command.groups.size(); ++i) {
    const Job* moved = moved_job(state, command, i);
    if (moved == nullptr) return stale();
    kept.push_back(kept_for(state, command, i, *moved, stamp.at));
  }
  if (!preempt_group(state, *job, gains, stamp, found)) return stale();
  for (Event& event : found) {
    if (auto* promised = std::get_if<DevicesPromised>(&event)) {
      Promise promise = *promised->promise;
      promise.moved_by = command.by;
      promise.moved_why = command.why;
      promised->promise = std::move(promise);
    }
    events.push_back(std::move(event));
  }
  for (Promise& promise : kept) events.push_back(DevicesPromised{.promise = std::move(promise)});
  return {.rejection = {}, .first_id = job->id.value, .id_count = 1};
}

}  // namespace gpusched::rules
