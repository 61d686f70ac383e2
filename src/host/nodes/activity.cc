#include "host/nodes/activity.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "host/nodes/rules/wire.h"

namespace gpusched::hub {
namespace {

Duration span_of(int64_t ms) { return milliseconds(std::clamp<int64_t>(ms, 0, limits::kRuntimeMax.ms())); }

MemberActivity activity_of(const v1::AttemptActivity& told) {
  return {.idle = span_of(told.idle_ms()),
          .busy = span_of(told.busy_ms()),
          .quiet = span_of(told.quiet_ms()),
          .over_mb = told.over_share_mb(),
          .over = span_of(told.over_share_ms())};
}

}  // namespace

void Activity::on_heartbeat(Connection& connection, const v1::Heartbeat& message) {
  connection.beats += 1;
  std::set<std::pair<JobId, uint32_t>> attempts;
  std::size_t taken = 0;
  for (const v1::AttemptActivity& told : message.activity()) {
    if (taken >= limits::kAttemptsPerNodeMax) break;
    const AttemptKey key = from_wire(told.key());
    const Attempt* attempt = hooks_.state().find_attempt(key.job, key.attempt);
    if (attempt == nullptr || !attempt->was_placed(Time{told.placed_at_ns()})) continue;
    // A node speaks for its own members.
    if (key.member >= attempt->members.size() || attempt->members[key.member].node != connection.node)
      continue;
    std::vector<AttemptRow::Told>& members = attempts_.row_of(*attempt).told;
    if (members.empty()) members.resize(attempt->members.size());
    members[key.member] = {
        .connection = connection.id, .beat = connection.beats, .activity = activity_of(told)};
    taken += 1;
    attempts.emplace(key.job, key.attempt);
  }
  for (const auto& [job, number] : attempts) {
    const Attempt* attempt = hooks_.state().find_attempt(job, number);
    AttemptRow* row = attempts_.find(job, number);
    if (attempt == nullptr || row == nullptr) continue;
    // A gang is looked at once a round, when the node of its first member with devices speaks.
    const auto first = std::find_if(attempt->members.begin(), attempt->members.end(),
                                    [](const Member& member) { return member.device_mask != 0; });
    if (first != attempt->members.end() && first->node == connection.node) look_at(*attempt, *row);
  }
}

/// Read once for each attempt: heartbeats come often, and specifications may be large.
const WatchPolicy& Activity::policy_of(const Job& job, AttemptRow& row) const {
  if (row.watch_policy) return *row.watch_policy;
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) spec.Clear();
  return row.watch_policy.emplace(gpusched::policy_of(limits_, spec));
}

void Activity::look_at(const Attempt& attempt, AttemptRow& row) {
  const Job* job = hooks_.state().jobs.find(attempt.job);
  if (job == nullptr || job->state != JobState::kRunning || attempt.abandoned ||
      attempt.stop != StopReason::kNone || row.finding_proposed) {
    return;
  }
  std::vector<MemberActivity> members;
  for (uint32_t member = 0; member < attempt.members.size(); ++member) {
    const Connection* connection = connections_.of(attempt.members[member].node);
    if (connection == nullptr) return;  // A silent node may be at work.
    if (attempt.members[member].device_mask == 0) continue;
    if (member >= row.told.size()) return;
    const AttemptRow::Told& told = row.told[member];
    // Only what its node's newest heartbeat told.
    if (told.connection != connection->id || told.beat != connection->beats) return;
    members.push_back(told.activity);
  }
  const RunTime run_time{.limit = job->max_runtime, .past = hooks_.now() - attempt.started_at};
  WatchFinding found = judge(policy_of(*job, row), members, run_time);
  if (found.kind == job->extras->watch && found.action == WatchAction::kWarn) return;
  row.finding_proposed = true;
  hooks_.propose(ReportWatchdogFinding{.job = attempt.job,
                                       .attempt = attempt.number,
                                       .kind = found.kind,
                                       .detail = std::move(found.detail),
                                       .age = found.age,
                                       .action = found.action},
                 [this, id = attempt.job, number = attempt.number](const Result<Decided>&) {
                   if (AttemptRow* judged = attempts_.find(id, number); judged != nullptr)
                     judged->finding_proposed = false;
                 });
}

}  // namespace gpusched::hub
