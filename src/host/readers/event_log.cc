#include "host/readers/event_log.h"

#include <string>

#include "base/overloaded.h"
#include "log/log.h"

namespace gpusched {
namespace {

constexpr const char* kComponent = "scheduler";

}  // namespace

/// Writes the line of one event, if it has one.
class EventLog::Writer
    : public Ignores<RequestRemembered, OldestRequestForgotten, MemberEnded, AttemptAbandoned, BackoffEnded,
                     JobsForgotten, DeviceFreed, DeviceOccupied, TimerDropped, JobUpdated, JobHoldChanged,
                     NodeLabeled, NodeFailureNoted, TimeSkipped, DependencySettled, ElementAdded,
                     JobCheckpointed, Admitted, BookingMade, BookingBegan, BookingEnded, ShareFreed,
                     ElementUnparked, RequestForgotten, TenantsForgotten, KeyForgotten, NodeTicketForgotten> {
 public:
  Writer(EventLog& log, const State& state, Time now) : log_(log), state_(state), now_(now) {}
  using Ignores::operator();

  // Jobs: as many lines in a second as may be.
  void operator()(const JobSubmitted& event) {
    log_job(
        LogLevel::kInfo, "task_submitted", {.id = event.job},
        {{"tenant", event.tenant.value}, {"gpus", event.request.parts.front().gpu_count}, {"by", event.by}});
  }
  void operator()(const ArrayClosed& event) {
    log_job(LogLevel::kInfo, "array_closed", {.id = event.job}, {{"reason", to_string(event.reason)}});
  }
  void operator()(const AttemptPlaced& event) {
    log_job(LogLevel::kInfo, "task_scheduled", {.id = event.job},
            {{"attempt", event.attempt}, {"node", node_name(event.members.front().node)}});
  }
  void operator()(const MemberStarted& event) {
    log_job(LogLevel::kInfo, "task_started", {.id = event.job}, {{"attempt", event.attempt}});
  }
  void operator()(const JobRequeued& event) {
    log_job(LogLevel::kWarning, "task_pending", {.id = event.job},
            {{"cause", to_string(event.outcome.cause)}, {"detail", event.outcome.detail}});
  }
  void operator()(const JobFinished& event) {
    const bool good = event.state == JobState::kCompleted;
    const char* name = good                                  ? "task_finished"
                       : event.state == JobState::kCancelled ? "task_cancelled"
                                                             : "task_failed";
    const Job* job = state_.jobs.find(event.job);
    log_job(LogLevel::kInfo, name, {.id = event.job},
            {{"reason", to_string(event.reason)},
             {"exit_code", event.outcome.exit_code},
             {"signal", event.outcome.signal},
             {"attempts", job == nullptr ? 0u : job->attempt_count}});
  }
  void operator()(const MemberPrepared& event) {
    const Attempt* attempt = state_.find_attempt(event.job, event.attempt);
    if (attempt == nullptr || !attempt->may_go()) return;
    log_job(LogLevel::kInfo, "gang_begins", {.id = event.job},
            {{"attempt", event.attempt}, {"members", attempt->members.size()}});
  }
  void operator()(const StopRequested& event) {
    if (event.reason == StopReason::kGang) {
      log_job(LogLevel::kWarning, "gang_broken", {.id = event.job}, {{"attempt", event.attempt}});
    } else if (event.reason == StopReason::kPreempt) {
      log_job(LogLevel::kInfo, "task_preempted", {.id = event.job}, {{"attempt", event.attempt}});
    }
  }
  void operator()(const DevicesPromised& event) {
    const Promise& promise = *event.promise;
    log_job(LogLevel::kInfo, "task_preempting", {.id = promise.job},
            {{"node", node_name(promise.members.front().node)}, {"victims", promise.victims.size()}});
  }
  void operator()(const PromiseEnded& event) {
    if (event.why == PromiseEnd::kPlaced) return;
    log_job(LogLevel::kWarning, "task_promise_over", {.id = event.job}, {{"why", to_string(event.why)}});
  }

  // Nodes, devices, tenants, warnings and what people asked for: all of them.

  void operator()(const JobAsked& event) const {
    log_event(LogLevel::kInfo, kComponent, "task_" + std::string(to_string(event.step)), {.id = event.job},
              {{"by", event.by}});
  }
  void operator()(const Configured& event) const {
    const PoolShares& pools = event.config.pools;
    if (!log_.pools_) log_.pools_ = pools;
    if (!log_.pools_->same_shares(pools)) {
      log_.pools_ = pools;
      log_event(LogLevel::kInfo, kComponent, "quota_updated", {},
                {{"online_percent", static_cast<double>(pools.online_milli) / 10},
                 {"batch_percent", static_cast<double>(pools.batch_milli) / 10}});
    }
    const Pause& pause = event.config.pause;
    if (pause.on() == log_.paused_) return;
    log_.paused_ = pause.on();
    log_event(pause.on() ? LogLevel::kWarning : LogLevel::kInfo, kComponent,
              pause.on() ? "starts_paused" : "starts_resumed", {}, {{"by", pause.by}, {"reason", pause.why}});
  }
  void operator()(const NodeRegistered& event) const {
    log_event(LogLevel::kInfo, kComponent, "agent_registered", {},
              {{"node", event.offer->name},
               {"devices", event.offer->devices.size()},
               {"rebooted", event.rebooted}});
  }
  void operator()(const NodeStateChanged& event) const {
    log_event(LogLevel::kWarning, kComponent, event.to == NodeState::kReady ? "agent_back" : "agent_offline",
              {}, {{"node", node_name(event.node)}, {"state", to_string(event.to)}});
  }
  void operator()(const NodeAvailabilityChanged& event) const {
    const bool good = event.to == Availability::kInService;
    const char* name = good                                  ? "agent_in_service"
                       : event.to == Availability::kDraining ? "agent_draining"
                                                             : "agent_validating";
    log_event(good ? LogLevel::kInfo : LogLevel::kWarning, kComponent, name, {},
              {{"node", node_name(event.node)}, {"by", event.by}, {"reason", event.reason}});
  }
  void operator()(const KeyCreated& event) const {
    log_event(LogLevel::kInfo, kComponent, "key_created", {},
              {{"key", event.key->id.value}, {"name", event.key->name}, {"by", event.key->created_by}});
  }
  void operator()(const KeyRevoked& event) const {
    log_event(LogLevel::kInfo, kComponent, "key_revoked", {}, {{"key", event.key.value}, {"by", event.by}});
  }
  void operator()(const RoleBound& event) const {
    log_event(LogLevel::kInfo, kComponent, event.taken ? "role_taken" : "role_given", {},
              {{"key", event.key.value},
               {"tenant", event.tenant.value},
               {"role", to_string(event.role)},
               {"by", event.by}});
  }
  void operator()(const PersonRecorded& event) const {
    log_event(LogLevel::kInfo, kComponent, "user_recorded", {},
              {{"user", event.person->id.value},
               {"tenant", event.person->tenant.value},
               {"active", event.person->active},
               {"by", event.person->changed_by}});
  }
  void operator()(const NodeTicketCreated& event) const {
    log_event(LogLevel::kInfo, kComponent, "node_token_created", {},
              {{"node", event.ticket->node}, {"by", event.ticket->created_by}});
  }
  void operator()(const NodeAdmitted& event) const {
    log_event(LogLevel::kInfo, kComponent, "node_admitted", {},
              {{"node", event.identity->node}, {"by", event.identity->admitted_by}});
  }
  void operator()(const NodeRenewed& event) const {
    const NodeIdentity* const identity = state_.node_identities.find(event.identity);
    log_event(LogLevel::kInfo, kComponent, "node_renewed", {},
              {{"node", identity == nullptr ? std::string() : identity->node}});
  }
  void operator()(const NodeRevoked& event) const {
    log_event(LogLevel::kWarning, kComponent, "node_revoked", {}, {{"node", event.node}, {"by", event.by}});
  }
  void operator()(const NodeRemoved& event) const {
    log_event(LogLevel::kInfo, kComponent, "node_removed", {},
              {{"node", event.node.value}, {"by", event.by}});
  }
  void operator()(const NodeSuspected& event) const {
    const bool over = event.detail.empty();
    log_event(over ? LogLevel::kInfo : LogLevel::kError, kComponent,
              over ? "node_not_suspect" : "node_suspect", {},
              {{"node", node_name(event.node)}, {"reason", event.detail}});
  }
  void operator()(const DeviceQuarantined& event) const {
    log_event(LogLevel::kError, kComponent, "device_quarantined", {},
              {{"node", node_name(event.node)}, {"device", event.device}, {"evidence", event.evidence}});
  }
  void operator()(const DeviceConditionChanged& event) const {
    log_event(LogLevel::kWarning, kComponent, "device_condition", {},
              {{"node", node_name(event.node)},
               {"device", event.device},
               {"condition", to_string(event.condition)},
               {"detail", event.detail}});
  }
  void operator()(const DeviceBarred& event) const {
    log_event(LogLevel::kWarning, kComponent, event.barred ? "device_taken_out" : "device_given_back", {},
              {{"node", node_name(event.node)},
               {"device", event.device},
               {"by", event.by},
               {"reason", event.detail}});
  }
  void operator()(const DeviceHeatChanged& event) const {
    log_event(event.hot ? LogLevel::kWarning : LogLevel::kInfo, kComponent,
              event.hot ? "device_hot" : "device_cooled", {},
              {{"node", node_name(event.node)}, {"device", event.device}, {"detail", event.detail}});
  }
  void operator()(const DeviceFaultChanged& event) const {
    const bool grave = event.fault >= FaultClass::kDrain;
    log_event(grave ? LogLevel::kWarning : LogLevel::kInfo, kComponent,
              event.fault == FaultClass::kNone ? "device_fault_over" : "device_fault", {},
              {{"node", node_name(event.node)},
               {"device", event.device},
               {"fault", to_string(event.fault)},
               {"code", event.code},
               {"detail", event.detail},
               {"by", event.by}});
  }
  void operator()(const TenantCreated& event) const {
    log_event(LogLevel::kInfo, kComponent, "tenant_created", {},
              {{"tenant", event.tenant->id.value}, {"name", event.tenant->name}, {"by", event.by}});
  }
  void operator()(const TenantDeleted& event) const {
    log_event(LogLevel::kInfo, kComponent, "tenant_deleted", {},
              {{"tenant", event.tenant.value}, {"by", event.by}});
  }
  void operator()(const TenantUpdated& event) const {
    log_event(LogLevel::kInfo, kComponent, "quota_updated", {},
              {{"tenant", event.change->tenant.value}, {"by", event.change->by}});
  }
  void operator()(const WatchdogFindingChanged& event) const {
    const bool warns = event.kind != WatchdogFinding::kNone;
    log_event(warns ? LogLevel::kWarning : LogLevel::kInfo, kComponent,
              warns ? "job_warned" : "job_not_warned", {.id = event.job},
              {{"attempt", event.attempt},
               {"kind", to_string(event.kind)},
               {"action", to_string(event.action)},
               {"detail", event.detail}});
  }

 private:
  void log_job(LogLevel level, std::string_view name, const LogSubject& job,
               std::initializer_list<LogField> details) {
    if (log_.may_write(now_)) log_event(level, kComponent, name, job, details);
  }

  std::string node_name(NodeId id) const {
    const Node* node = state_.find_node(id);
    return node == nullptr ? std::string() : node->name;
  }

  EventLog& log_;
  const State& state_;
  Time now_;
};

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
  Writer writer(*this, view.state, changes.last.at);
  for (const Event& event : changes.events) std::visit(writer, event);
}

}  // namespace gpusched
