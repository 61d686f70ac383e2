#include "host/nodes/orders.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/job_signals.h"
#include "base/queue_limits.h"
#include "base/text/task_payload.h"
#include "host/nodes/rules/wire.h"

namespace gpusched::hub {
namespace {

/// Adds the wishes of a job that is ended for another one: its own signal, its own time.
void ask_to_save(const Job& job, Duration grace_max, v1::StopAttempt& stop) {
  stop.set_until_saved(true);
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) return;
  if (const auto signal = parse_job_signal(spec.preempt_signal()))
    stop.set_signal(static_cast<uint32_t>(signal->number));
  const Duration asked = milliseconds(std::clamp<int64_t>(spec.preempt_grace_ms(), 0, grace_max.ms()));
  if (asked.ns > 0) stop.set_grace_ms(asked.ms());
}

}  // namespace

void Orders::on_placed(const Attempt& attempt) {
  attempts_.row_of(attempt);
  pending_starts_.add(attempt);
}

void Orders::send_starts() {
  const auto tell = [this](const AttemptKey& key, Time placed_at, NodeId node,
                           const std::vector<uint32_t>& members) {
    const Attempt* attempt = hooks_.state().find_attempt(key.job, key.attempt);
    if (attempt == nullptr || attempt->placed_at != placed_at || attempt->stop != StopReason::kNone)
      return false;  // It is over before it began.
    const Connection* connection = connections_.of(node);
    if (connection != nullptr) start(*connection, *attempt, members);
    return true;
  };
  pending_starts_.tell(limits::kStartsPerTurn, tell);
}

void Orders::start(const Connection& connection, const Attempt& attempt,
                   const std::vector<uint32_t>& members) {
  const State& state = hooks_.state();
  const auto index_of = [&](uint32_t slot) { return connection.agent_index(slot); };
  const auto common = [&] { return common_start(state, attempt, limits_.grace, limits_.lease); };
  v1::SchedulerMessage whole;
  for (const uint32_t member : members) {
    std::optional<v1::StartAttempt> own = member_start(state, attempt, member, index_of);
    if (!own) continue;
    if (!attempt.is_gang()) {
      *whole.mutable_start() = common();
      whole.mutable_start()->MergeFrom(*own);
      const Job* const job = state.jobs.find(attempt.job);
      CHECK(job != nullptr);
      const std::string_view payload = task_payload_of(job->spec.view());
      if (payload.empty()) return connection.send(whole);
      return connection.peer->send_start(whole, job->spec, payload);
    }
    if (connection.takes_members) {
      *whole.mutable_start_members()->add_members() = std::move(*own);
      continue;
    }
    v1::SchedulerMessage one;
    *one.mutable_start() = std::move(*own);
    connection.peer->send(one, shared_starts_.part_of(attempt.key(), attempt.placed_at, false, common));
  }
  if (whole.has_start_members())
    connection.peer->send(whole, shared_starts_.part_of(attempt.key(), attempt.placed_at, true, common));
}

void Orders::release_gang(const Attempt& attempt) {
  if (!AttemptTable::advance(attempts_.row_of(attempt), AttemptState::kReleased)) return;
  for (uint32_t member = 0; member < attempt.members.size(); ++member) {
    const Connection* connection = connections_.of(attempt.members[member].node);
    if (connection != nullptr) release(*connection, attempt, member);
  }
}

void Orders::release(const Connection& connection, const Attempt& attempt, uint32_t member) {
  v1::SchedulerMessage message;
  *message.mutable_go()->mutable_key() = to_wire(attempt.key(member));
  message.mutable_go()->set_placed_at_ns(attempt.placed_at.ns);
  connection.send(message);
}

void Orders::stop_everywhere(const Attempt& attempt) {
  CHECK(AttemptTable::advance(attempts_.row_of(attempt), AttemptState::kStopping));
  v1::SchedulerMessage message = stop_order(attempt.key(), attempt.placed_at, attempt.stop);
  for (uint32_t member = 0; member < attempt.members.size(); ++member) {
    if (attempt.members[member].state == MemberState::kEnded) continue;
    const Connection* connection = connections_.of(attempt.members[member].node);
    if (connection == nullptr) continue;
    message.mutable_stop()->mutable_key()->set_member(member);
    connection->send(message);
  }
}

void Orders::stop(const Connection& connection, const AttemptKey& key, Time placed_at,
                  StopReason reason) const {
  connection.send(stop_order(key, placed_at, reason));
}

v1::SchedulerMessage Orders::stop_order(const AttemptKey& key, Time placed_at, StopReason reason) const {
  v1::SchedulerMessage message;
  *message.mutable_stop()->mutable_key() = to_wire(key);
  message.mutable_stop()->set_grace_ms(limits_.grace.ms());
  message.mutable_stop()->set_placed_at_ns(placed_at.ns);
  const Job* job = hooks_.state().jobs.find(key.job);
  if (reason == StopReason::kPreempt && job != nullptr)
    ask_to_save(*job, limits_.preempt_grace_max, *message.mutable_stop());
  return message;
}

void Orders::on_updated(JobId job, bool new_max_runtime) {
  shared_starts_.forget(job);
  if (new_max_runtime) change(job);
}

void Orders::change(JobId id) {
  const Job* job = hooks_.state().jobs.find(id);
  if (job == nullptr) return;
  const Attempt* attempt = hooks_.state().find_attempt(id, job->attempt_count);
  if (attempt == nullptr || attempt->abandoned) return;
  for (uint32_t member = 0; member < attempt->members.size(); ++member) {
    const Connection* connection = connections_.of(attempt->members[member].node);
    if (connection == nullptr) continue;
    v1::SchedulerMessage message;
    *message.mutable_change()->mutable_key() = to_wire(attempt->key(member));
    message.mutable_change()->set_max_runtime_ms(job->max_runtime.ms());
    connection->send(message);
  }
}

bool Orders::reboot(NodeId node, const std::string& reason) {
  const Connection* connection = connections_.of(node);
  if (connection == nullptr) return false;
  v1::SchedulerMessage message;
  message.mutable_reboot()->set_reason(reason);
  connection->send(message);
  return true;
}

bool Orders::validate(NodeId node) {
  const Connection* connection = connections_.of(node);
  if (connection == nullptr) return false;
  v1::SchedulerMessage message;
  message.mutable_validate();
  connection->send(message);
  return true;
}

}  // namespace gpusched::hub
