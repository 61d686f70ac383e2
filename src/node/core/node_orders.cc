// NodeCore: whether what was ordered of shims came true. A shim, and what starts them, may be stopped or
// hang.
#include <algorithm>
#include <utility>

#include "log/log.h"
#include "node/core/node_core.h"

namespace gpusched {

/// It is to have ended when its grace is over, and a while.
void NodeCore::expect_end(Row& attempt, const StopOrder& order) {
  const Time due = ports_.clock.monotonic() + order.grace + options_.order_patience;
  if (attempt.due(Deadline::kEnd) <= due) return;
  attempt.end_cause = v1::Outcome::STOPPED;
  attempts_.set_due(attempt, Deadline::kEnd, due);
}

/// Its shim ends it at its maximum runtime, also where no scheduler is heard.
void NodeCore::expect_end_of_run(Row& attempt) {
  if (!attempt.run_limit || !attempt.run_limit->since.valid()) return;
  const Row::RunLimit& limit = *attempt.run_limit;
  const bool stops = attempt.due(Deadline::kEnd) != kNever && attempt.end_cause == v1::Outcome::STOPPED;
  if (stops) return;
  attempt.end_cause = v1::Outcome::TIMEOUT;
  const bool limited = limit.max_runtime.ns != 0;
  attempts_.set_due(
      attempt, Deadline::kEnd,
      limited ? limit.since + limit.max_runtime + limit.grace + options_.order_patience : kNever);
}

void NodeCore::look_at_orders(Time now) {
  for (Row* attempt : attempts_.late(Deadline::kEnd, now)) {
    log_event(LogLevel::kError, "agent",
              attempt->end_cause == v1::Outcome::TIMEOUT ? "limit_not_carried_out" : "stop_not_carried_out",
              {.id = attempt->key.job},
              {{"attempt", attempt->key.attempt}, {"action", "its shim and its processes are ended"}});
    attempts_.set_due(*attempt, Deadline::kEnd, now + options_.order_patience);
    attempt->ignored_order = attempt->end_cause;
    ports_.spawner.force_end(attempt->key);
  }
  if (attempts_.in(State::kStarting).empty()) return;
  for (const Preparation& preparation : ports_.spawner.preparing()) {
    Row* const attempt = attempts_.find(preparation.key);
    if (attempt != nullptr && attempt->due(Deadline::kStart) != kNever)
      attempts_.set_due(*attempt, Deadline::kStart, now + options_.order_patience);
  }
  if (attempts_.late(Deadline::kStart, now).empty()) return;
  std::vector<Row*> unheard;
  for (Row* attempt : attempts_.in(State::kStarting)) {
    if (attempt->due(Deadline::kStart) != kNever) unheard.push_back(attempt);
  }
  const std::string problem = "gpu-shim has not begun what was ordered for " +
                              std::to_string(options_.order_patience.ms() / 1'000) + " s and is replaced";
  log_event(LogLevel::kError, "agent", "start_not_carried_out", {.id = unheard.front()->key.job},
            {{"attempts", unheard.size()}, {"action", problem}});
  for (Row* attempt : unheard) {
    attempts_.set_due(*attempt, Deadline::kStart, kNever);
    attempt->ignored_order = v1::Outcome::NODE_FAULT;
  }
  note_fault(problem);
  ports_.spawner.replace_server();
}

/// What an attempt without an outcome of its own ended by.
v1::Outcome NodeCore::outcome_of_lost(const Row& attempt, const std::string& detail) const {
  return make_outcome(attempt.ignored_order.value_or(v1::Outcome::SHIM_LOST), detail);
}

}  // namespace gpusched
