// NodeCore: whether what was ordered of shims came true. A shim, and what starts them, may be stopped or
// hang.
#include <algorithm>
#include <utility>

#include "log/log.h"
#include "node/core/node_core.h"

namespace gpusched {

/// It is to have ended when its grace is over, and a while.
void NodeCore::expect_end(const AttemptKey& key, const StopOrder& order) {
  const Time due = ports_.clock.monotonic() + order.grace + options_.order_patience;
  EndDue& known = ends_due_[key];
  if (!known.due.valid() || due < known.due) known = {.due = due, .cause = v1::Outcome::STOPPED};
}

/// Its shim ends it at its maximum runtime, also where no scheduler is heard.
void NodeCore::expect_end_of_run(const AttemptKey& key) {
  const auto found = run_limits_.find(key);
  if (found == run_limits_.end() || !found->second.since.valid()) return;
  const RunLimit& limit = found->second;
  const auto known = ends_due_.find(key);
  const bool stops = known != ends_due_.end() && known->second.cause == v1::Outcome::STOPPED;
  if (stops) return;
  if (known != ends_due_.end()) ends_due_.erase(known);
  if (limit.max_runtime.ns == 0) return;
  ends_due_[key] = {.due = limit.since + limit.max_runtime + limit.grace + options_.order_patience,
                    .cause = v1::Outcome::TIMEOUT};
}

void NodeCore::expect_start(const AttemptKey& key) {
  starts_due_[key] = ports_.clock.monotonic() + options_.order_patience;
}

void NodeCore::forget_orders(const AttemptKey& key) {
  ends_due_.erase(key);
  starts_due_.erase(key);
  unheard_.erase(key);
  run_limits_.erase(key);
}

void NodeCore::look_at_orders(Time now) {
  std::vector<AttemptKey> late;
  for (const auto& [key, end] : ends_due_) {
    if (now >= end.due) late.push_back(key);
  }
  for (const AttemptKey& key : late) {
    EndDue& end = ends_due_[key];
    log_event(LogLevel::kError, "agent",
              end.cause == v1::Outcome::TIMEOUT ? "limit_not_carried_out" : "stop_not_carried_out",
              {.id = key.job},
              {{"attempt", key.attempt}, {"action", "its shim and its processes are ended"}});
    end.due = now + options_.order_patience;
    unheard_[key] = end.cause;
    ports_.spawner.force_end(key);
  }
  if (starts_due_.empty()) return;
  for (const Preparation& attempt : ports_.spawner.preparing()) {
    if (const auto found = starts_due_.find(attempt.key); found != starts_due_.end())
      found->second = now + options_.order_patience;
  }
  const bool any_late = std::any_of(starts_due_.begin(), starts_due_.end(),
                                    [now](const auto& start) { return now >= start.second; });
  if (!any_late) return;
  const std::string problem = "gpu-shim has not begun what was ordered for " +
                              std::to_string(options_.order_patience.ms() / 1'000) + " s and is replaced";
  log_event(LogLevel::kError, "agent", "start_not_carried_out", {.id = starts_due_.begin()->first.job},
            {{"attempts", starts_due_.size()}, {"action", problem}});
  for (const auto& [key, due] : std::exchange(starts_due_, {})) unheard_[key] = v1::Outcome::NODE_FAULT;
  note_fault(problem);
  ports_.spawner.replace_server();
}

/// What an attempt without an outcome of its own ended by.
v1::Outcome NodeCore::outcome_of_lost(const AttemptKey& key, const std::string& detail) const {
  const auto ordered = unheard_.find(key);
  return make_outcome(ordered == unheard_.end() ? v1::Outcome::SHIM_LOST : ordered->second, detail);
}

}  // namespace gpusched
