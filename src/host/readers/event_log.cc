#include "host/readers/event_log.h"

#include <string>

#include "log/log.h"

namespace gpusched {
namespace {

constexpr const char* kComponent = "scheduler";

std::string node_name(const State& state, NodeId id) {
  const Node* node = state.find_node(id);
  return node == nullptr ? std::string() : node->name;
}

void log_finished(const State& state, const JobFinished& event) {
  const bool good = event.state == JobState::kCompleted;
  const char* name = good                                  ? "task_finished"
                     : event.state == JobState::kCancelled ? "task_cancelled"
                                                           : "task_failed";
  const Job* job = state.jobs.find(event.job);
  log_event(LogLevel::kInfo, kComponent, name, {.id = event.job},
            {{"reason", to_string(event.reason)},
             {"exit_code", event.outcome.exit_code},
             {"signal", event.outcome.signal},
             {"attempts", job == nullptr ? 0u : job->attempt_count}});
}

void log_job_event(const State& state, const Event& event) {
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) {
    log_event(LogLevel::kInfo, kComponent, "task_submitted", {.id = submitted->job},
              {{"tenant", submitted->tenant.value}, {"gpus", submitted->request.parts.front().gpu_count}});
    return;
  }
  if (const auto* closed = std::get_if<ArrayClosed>(&event)) {
    log_event(LogLevel::kInfo, kComponent, "array_closed", {.id = closed->job},
              {{"reason", to_string(closed->reason)}});
    return;
  }
  if (const auto* placed = std::get_if<AttemptPlaced>(&event)) {
    log_event(LogLevel::kInfo, kComponent, "task_scheduled", {.id = placed->job},
              {{"attempt", placed->attempt}, {"node", node_name(state, placed->members.front().node)}});
    return;
  }
  if (const auto* started = std::get_if<MemberStarted>(&event)) {
    log_event(LogLevel::kInfo, kComponent, "task_started", {.id = started->job},
              {{"attempt", started->attempt}});
    return;
  }
  if (const auto* prepared = std::get_if<MemberPrepared>(&event)) {
    const Attempt* attempt = state.find_attempt(prepared->job, prepared->attempt);
    if (attempt == nullptr || !attempt->may_go()) return;
    log_event(LogLevel::kInfo, kComponent, "gang_begins", {.id = prepared->job},
              {{"attempt", prepared->attempt}, {"members", attempt->members.size()}});
    return;
  }
  if (const auto* requeued = std::get_if<JobRequeued>(&event)) {
    log_event(LogLevel::kWarning, kComponent, "task_pending", {.id = requeued->job},
              {{"cause", to_string(requeued->outcome.cause)}, {"detail", requeued->outcome.detail}});
    return;
  }
  if (const auto* stopped = std::get_if<StopRequested>(&event)) {
    if (stopped->reason == StopReason::kGang) {
      log_event(LogLevel::kWarning, kComponent, "gang_broken", {.id = stopped->job},
                {{"attempt", stopped->attempt}});
    }
    if (stopped->reason != StopReason::kPreempt) return;
    log_event(LogLevel::kInfo, kComponent, "task_preempted", {.id = stopped->job},
              {{"attempt", stopped->attempt}});
    return;
  }
  if (const auto* promised = std::get_if<DevicesPromised>(&event)) {
    const Promise& promise = *promised->promise;
    log_event(
        LogLevel::kInfo, kComponent, "task_preempting", {.id = promise.job},
        {{"node", node_name(state, promise.members.front().node)}, {"victims", promise.victims.size()}});
    return;
  }
  if (const auto* over = std::get_if<PromiseEnded>(&event)) {
    if (over->why == PromiseEnd::kPlaced) return;
    log_event(LogLevel::kWarning, kComponent, "task_promise_over", {.id = over->job},
              {{"why", to_string(over->why)}});
    return;
  }
  if (const auto* finished = std::get_if<JobFinished>(&event)) log_finished(state, *finished);
}

void log_node_event(const State& state, const Event& event) {
  if (const auto* registered = std::get_if<NodeRegistered>(&event)) {
    log_event(LogLevel::kInfo, kComponent, "agent_registered", {},
              {{"node", registered->offer->name},
               {"devices", registered->offer->devices.size()},
               {"rebooted", registered->rebooted}});
  } else if (const auto* moved = std::get_if<NodeStateChanged>(&event)) {
    log_event(LogLevel::kWarning, kComponent, moved->to == NodeState::kReady ? "agent_back" : "agent_offline",
              {}, {{"node", node_name(state, moved->node)}, {"state", to_string(moved->to)}});
  } else if (const auto* available = std::get_if<NodeAvailabilityChanged>(&event)) {
    const bool good = available->to == Availability::kInService;
    const char* name = good                                       ? "agent_in_service"
                       : available->to == Availability::kDraining ? "agent_draining"
                                                                  : "agent_validating";
    log_event(
        good ? LogLevel::kInfo : LogLevel::kWarning, kComponent, name, {},
        {{"node", node_name(state, available->node)}, {"by", available->by}, {"reason", available->reason}});
  } else if (const auto* quarantined = std::get_if<DeviceQuarantined>(&event)) {
    log_event(LogLevel::kError, kComponent, "device_quarantined", {},
              {{"node", node_name(state, quarantined->node)},
               {"device", quarantined->device},
               {"evidence", quarantined->evidence}});
  } else if (const auto* condition = std::get_if<DeviceConditionChanged>(&event)) {
    log_event(LogLevel::kWarning, kComponent, "device_condition", {},
              {{"node", node_name(state, condition->node)},
               {"device", condition->device},
               {"condition", to_string(condition->condition)},
               {"detail", condition->detail}});
  } else if (const auto* barred = std::get_if<DeviceBarred>(&event)) {
    log_event(LogLevel::kWarning, kComponent, barred->barred ? "device_taken_out" : "device_given_back", {},
              {{"node", node_name(state, barred->node)},
               {"device", barred->device},
               {"by", barred->by},
               {"reason", barred->detail}});
  } else if (const auto* heat = std::get_if<DeviceHeatChanged>(&event)) {
    log_event(heat->hot ? LogLevel::kWarning : LogLevel::kInfo, kComponent,
              heat->hot ? "device_hot" : "device_cooled", {},
              {{"node", node_name(state, heat->node)}, {"device", heat->device}, {"detail", heat->detail}});
  } else if (const auto* fault = std::get_if<DeviceFaultChanged>(&event)) {
    const bool grave = fault->fault >= FaultClass::kDrain;
    log_event(grave ? LogLevel::kWarning : LogLevel::kInfo, kComponent,
              fault->fault == FaultClass::kNone ? "device_fault_over" : "device_fault", {},
              {{"node", node_name(state, fault->node)},
               {"device", fault->device},
               {"fault", to_string(fault->fault)},
               {"code", fault->code},
               {"detail", fault->detail},
               {"by", fault->by}});
  } else if (const auto* removed = std::get_if<NodeRemoved>(&event)) {
    log_event(LogLevel::kInfo, kComponent, "node_removed", {},
              {{"node", removed->node.value}, {"by", removed->by}});
  } else if (const auto* watch = std::get_if<WatchdogFindingChanged>(&event)) {
    const bool warns = watch->kind != WatchdogFinding::kNone;
    log_event(warns ? LogLevel::kWarning : LogLevel::kInfo, kComponent,
              warns ? "job_warned" : "job_not_warned", {.id = watch->job},
              {{"attempt", watch->attempt},
               {"kind", to_string(watch->kind)},
               {"action", to_string(watch->action)},
               {"detail", watch->detail}});
  } else if (const auto* suspect = std::get_if<NodeSuspected>(&event)) {
    log_event(suspect->detail.empty() ? LogLevel::kInfo : LogLevel::kError, kComponent,
              suspect->detail.empty() ? "node_not_suspect" : "node_suspect", {},
              {{"node", node_name(state, suspect->node)}, {"reason", suspect->detail}});
  } else if (const auto* updated = std::get_if<TenantUpdated>(&event)) {
    log_event(LogLevel::kInfo, kComponent, "quota_updated", {}, {{"tenant", updated->change->tenant.value}});
  }
}

bool is_job_event(const Event& event) {
  return std::holds_alternative<JobSubmitted>(event) || std::holds_alternative<AttemptPlaced>(event) ||
         std::holds_alternative<MemberStarted>(event) || std::holds_alternative<JobRequeued>(event) ||
         std::holds_alternative<JobFinished>(event) || std::holds_alternative<ArrayClosed>(event);
}

}  // namespace

bool EventLog::may_write(Time now) {
  const int64_t second = now.ns / 1'000'000'000;
  if (second != second_) {
    if (suppressed_ > 0) {
      log_event(LogLevel::kInfo, kComponent, "task_events_suppressed", {}, {{"count", suppressed_}});
    }
    second_ = second;
    written_ = 0;
    suppressed_ = 0;
  }
  if (written_ < kLinesPerSecond) return ++written_, true;
  ++suppressed_;
  return false;
}

void EventLog::on_changes(const Observer::View& view, const Changes& changes) {
  if (!log_enabled(LogLevel::kError)) return;
  for (const Event& event : changes.events) {
    if (!is_job_event(event)) {
      log_node_event(view.state, event);
    } else if (may_write(changes.last.at)) {
      log_job_event(view.state, event);
    }
  }
}

}  // namespace gpusched
