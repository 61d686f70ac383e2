#include "host/nodes/node_hub.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/overloaded.h"
#include "host/nodes/rules/wire.h"

namespace gpusched {

NodeHub::NodeHub(Hooks hooks, Duration lease, Duration heartbeat, Duration grace, Duration preempt_grace_max,
                 HeatLimits heat, WatchLimits watch)
    : hooks_(std::move(hooks)),
      connections_(hooks_),
      telemetry_(hooks_, connections_, heat),
      leases_(hooks_, connections_, lease, heartbeat),
      orders_(hooks_, connections_, attempts_,
              {.lease = lease, .grace = grace, .preempt_grace_max = preempt_grace_max}),
      fence_(hooks_, connections_, *telemetry_.table()),
      faults_(hooks_),
      reports_(hooks_, connections_, fence_, faults_),
      activity_(hooks_, connections_, attempts_, watch),
      output_(connections_),
      session_router_(
          [this](NodeId node, const v1::SchedulerMessage& message) {
            const hub::Connection* connection = connections_.of(node);
            if (connection != nullptr) connection->send(message);
            return connection != nullptr;
          },
          hooks_.monotonic) {}

void NodeHub::begin() {
  leases_.begin();
  // An earlier scheduler may have ended between a revocation and what follows from it.
  for (const Node& node : hooks_.state().nodes) {
    if (node.state == NodeState::kReady && is_revoked(node)) lose(node.id);
  }
}

// Streams.

void NodeHub::closed(SessionId id) {
  const std::optional<NodeId> node = connections_.close(id);
  if (!node) return;
  telemetry_.table()->set_connected(*node, false);
  session_router_.node_gone(*node);
  output_.node_gone(*node);
}

// A stream that it still had is of a node that nobody knows: its agent begins again.
void NodeHub::forget(NodeId node) {
  leases_.forget(node);
  if (const hub::Connection* connection = connections_.of(node); connection != nullptr) {
    const SessionId id = connection->id;
    connection->refuse("stale", "the node was removed; register again");
    closed(id);
  }
  telemetry_.table()->forget(node);
}

void NodeHub::receive(SessionId id, const v1::AgentMessage& message) {
  hub::Connection* const connection = connections_.find(id);
  if (connection == nullptr) return;
  if (message.has_register_()) return on_register(*connection, message.register_());
  const NodeId node = connection->node;
  if (!node.valid()) {
    if (!connection->registering) connection->refuse("not_registered", "the first message must be Register");
    return;
  }
  leases_.heard(node);
  if (message.has_heartbeat()) return on_heartbeat(*connection, message.heartbeat());
  if (message.has_report()) return reports_.on_report(*connection, message.report());
  if (message.has_log_chunk()) return output_.on_chunk(node, message.log_chunk());
  if (message.has_session_output()) return session_router_.on_output(node, message.session_output());
  if (message.has_file_chunk()) return session_router_.on_chunk(node, message.file_chunk());
}

// Registrations.

void NodeHub::on_register(hub::Connection& connection, const v1::Register& message) {
  if (connection.registering || connection.node.valid()) return;
  const std::string problem = hub::problem_of(message);
  if (!problem.empty()) return connection.refuse("invalid_argument", problem);
  if (const std::string name = hub::problem_of_name(hooks_.state(), message); !name.empty())
    return connection.refuse("invalid_argument", name);
  if (const std::string other = hub::problem_of_cluster(hooks_.state(), message); !other.empty())
    return connection.refuse("wrong_cluster", other);
  if (has_rival(message)) {
    return connection.refuse(
        std::string(to_string(RejectionCode::kNodeStillHeard)),
        "another agent of this node is connected; give each agent its own --data-dir and --node, or "
        "stop the other one");
  }
  connection.registering = true;
  hooks_.propose(hub::command_of(hooks_.state(), message), [this, id = connection.id,
                                                            message](const Result<Decided>& result) {
    const hub::Connection* waiting = connections_.find(id);
    if (waiting == nullptr) return;
    if (!result.ok())
      return waiting->refuse(std::string(to_string(result.error().code)), result.error().message);
    const std::optional<Rejection>& rejection = result->applied.rejection;
    if (rejection) return waiting->refuse(std::string(to_string(rejection->code)), describe(*rejection));
    registered(id, message, *result);
  });
}

// A killed agent's stream ends with it, or falls silent for longer than a few heartbeats.
bool NodeHub::has_rival(const v1::Register& message) {
  const Node* node = hooks_.state().find_node_named(message.node_name());
  // The engine gives a better reason for refusing another folder's agent.
  if (node == nullptr || message.process() == 0 || node->instance != message.instance()) return false;
  const hub::Connection* present = connections_.of(node->id);
  if (present == nullptr || present->process == 0 || present->process == message.process()) return false;
  return leases_.was_heard_just_now(node->id);
}

void NodeHub::registered(SessionId id, const v1::Register& message, const Decided& decided) {
  const NodeId node{decided.applied.first_id};
  if (const Node* const known = hooks_.state().find_node(node); known != nullptr && is_revoked(*known)) {
    connections_.find(id)->refuse(std::string(to_string(RejectionCode::kNodeRevoked)),
                                  describe(Rejection{.code = RejectionCode::kNodeRevoked}));
    return lose(node);
  }
  if (const hub::Connection* ghost = connections_.of(node); ghost != nullptr) {
    // The same agent on a new stream. Closed here, the old one's late end is nobody's any more.
    const SessionId old = ghost->id;
    ghost->peer->close();
    closed(old);
  }
  hub::Connection* const connection = connections_.find(id);
  CHECK(connection != nullptr);
  connections_.bind(*connection, node);
  connection->boot_id = message.boot_id();
  connection->takes_members = message.takes_members();
  connection->process = message.process();
  connection->registering = false;
  connection->slots = hub::slots_of_offer(hooks_.state(), message);
  for (const v1::Device& device : message.devices()) connection->heat.emplace_back(device.slowdown_celsius());
  leases_.heard(node);
  telemetry_.table()->set_connected(node, true);
  v1::SchedulerMessage reply;
  reply.mutable_registered()->set_node(node.value);
  reply.mutable_registered()->set_heartbeat_ms(std::max<int64_t>(leases_.heartbeat().ms(), 1));
  reply.mutable_registered()->set_lease_ms(leases_.lease().ms());
  reply.mutable_registered()->set_unix_ms(hooks_.now().ms());
  reply.mutable_registered()->set_cluster(hooks_.state().config.cluster);
  connection->send(reply);
  reconcile(*connection, message);
}

// Says again everything that the agent may have missed.
void NodeHub::reconcile(hub::Connection& connection, const v1::Register& message) {
  const State& state = hooks_.state();
  const Node& node = connections_.node_of(connection);
  std::map<AttemptKey, std::vector<uint32_t>> to_start;
  for (const AttemptKey& key : node.attempts) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    CHECK(attempt != nullptr);
    // A stop comes first: an attempt that never started then never will.
    if (attempt->stop != StopReason::kNone) {
      orders_.stop(connection, key, attempt->placed_at, attempt->stop);
    } else if (!has_begun(attempt->members[key.member].state)) {
      to_start[attempt->key()].push_back(key.member);
    } else {
      const Job* job = state.jobs.find(key.job);
      if (job != nullptr && job->runtime_changed) orders_.change(key.job);
    }
  }
  for (const auto& [key, members] : to_start) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    CHECK(attempt != nullptr);
    orders_.start(connection, *attempt, members);
    if (!attempt->may_go()) continue;
    for (const uint32_t member : members) hub::Orders::release(connection, *attempt, member);
  }
  for (const v1::AttemptOnNode& known : message.attempts()) {
    const AttemptKey key = hub::from_wire(known.key());
    const Time placed_at{known.placed_at_ns()};
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    const bool ours = attempt != nullptr && attempt->was_placed(placed_at);
    if (!ours && hub::is_foreign(state, known)) {
      hub::Connection::Foreign& foreign = connection.foreign.emplace_back(
          hub::Connection::Foreign{.key = key, .placed_at = placed_at, .slots = 0});
      for (const v1::GrantedDevice& device : known.devices()) {
        if (const auto slot = connection.slot_of(device.index())) foreign.slots |= uint64_t{1} << *slot;
      }
      continue;
    }
    if (!known.ended() && !ours) orders_.stop(connection, key, placed_at, StopReason::kAbandoned);
  }
  for (uint32_t slot = 0; slot < node.devices.size(); ++slot) {
    // It may have been released meanwhile.
    if (node.devices[slot].fault_id != 0) faults_.order_clear(connection, slot);
  }
  fence_.ask_all(connection);
}

void NodeHub::on_heartbeat(hub::Connection& connection, const v1::Heartbeat& message) {
  leases_.answer(connection, message.sequence());
  telemetry_.note_figures(connection, message);
  telemetry_.note_heat(connection, message);
  activity_.on_heartbeat(connection, message);
  telemetry_.note_saved(connection, message);
  leases_.renew(connection, message.sequence());
}

// Events.

void NodeHub::on_event(const Event& event) {
  std::visit(
      Overloaded{
          [&](const NodeRegistered& ready) { on_node_registered(ready.node); },
          [&](const NodeRemoved& removed) { forget(removed.node); },
          [&](const AttemptPlaced& placed) { on_placed(placed); },
          [&](const MemberPrepared& prepared) { on_prepared(prepared); },
          [&](const MemberEnded& ended) {
            if (ended.last) attempts_.erase(ended.job, ended.attempt);
          },
          // Members on nodes that still report.
          [&](const AttemptAbandoned& abandoned) { on_stopped(abandoned.job, abandoned.attempt); },
          [&](const StopRequested& stop) { on_stopped(stop.job, stop.attempt); },
          [&](const JobUpdated& updated) {
            orders_.on_updated(updated.change->job, (updated.change->given & kJobMaxRuntime) != 0);
          },
          [&](const DeviceOccupied& occupied) { take_back(occupied.node, occupied.device); },
          [&](const DeviceFaultChanged& fault) { on_fault_changed(fault); },
          [&](const NodeRevoked& revoked) { on_revoked(revoked.node); },
          Ignores<Configured, TenantCreated, TenantUpdated, TenantDeleted, NodeStateChanged,
                  DeviceConditionChanged, JobSubmitted, RequestRemembered, OldestRequestForgotten,
                  MemberStarted, JobFinished, JobRequeued, BackoffEnded, JobsForgotten, DeviceFreed,
                  DeviceQuarantined, TimerDropped, JobHoldChanged, NodeAvailabilityChanged, NodeLabeled,
                  NodeFailureNoted, TimeSkipped, DeviceBarred, DependencySettled, ElementAdded, ArrayClosed,
                  DevicesPromised, PromiseEnded, JobCheckpointed, Admitted, BookingMade, BookingBegan,
                  BookingEnded, ShareFreed, DeviceHeatChanged, NodeSuspected, WatchdogFindingChanged,
                  ElementUnparked, RequestForgotten, TenantsForgotten, JobAsked, KeyCreated, KeyRevoked,
                  RoleBound, KeyForgotten, NodeTicketCreated, NodeTicketForgotten, NodeAdmitted, NodeRenewed,
                  PersonRecorded>{}},
      event);
}

bool NodeHub::is_revoked(const Node& node) const {
  const NodeIdentity* const identity = hooks_.state().node_identities.find(node.name);
  return identity != nullptr && identity->is_revoked();
}

// Nobody obeys there any more: from here on nothing is placed on it, and what runs there goes on.
void NodeHub::lose(NodeId node) {
  hooks_.propose(NodeLeaseLost{.node = node}, [](const Result<Decided>&) {});
}

// Messages from here on, also those on their way already, are not the node's any more. The loss is
// proposed behind all that the node said before, such as that it has its lease back.
void NodeHub::on_revoked(const std::string& name) {
  const Node* const node = hooks_.state().find_node_named(name);
  if (node == nullptr) return;
  const NodeId id = node->id;
  if (const hub::Connection* const connection = connections_.of(id); connection != nullptr) {
    const SessionId session = connection->id;
    connection->refuse(std::string(to_string(RejectionCode::kNodeRevoked)),
                       describe(Rejection{.code = RejectionCode::kNodeRevoked}));
    closed(session);
  }
  lose(id);
}

void NodeHub::on_node_registered(NodeId id) {
  const Node* node = hooks_.state().find_node(id);
  CHECK(node != nullptr);
  orders_.on_registered(*node);
  leases_.registered(id);
}

void NodeHub::on_placed(const AttemptPlaced& placed) {
  const Attempt* attempt = hooks_.state().find_attempt(placed.job, placed.attempt);
  // Cancelled or lost within the same group: there is nothing left to start.
  if (attempt == nullptr || attempt->stop != StopReason::kNone) return;
  orders_.on_placed(*attempt);
  for (uint32_t member = 0; member < attempt->members.size(); ++member) {
    const Node* const node = hooks_.state().find_node(attempt->members[member].node);
    if (node == nullptr || !is_revoked(*node)) continue;
    // A plan that was on its way when the node was revoked: nobody was told of it, and nobody will be.
    hooks_.propose(
        AttemptEnded{.job = placed.job,
                     .attempt = placed.attempt,
                     .member = member,
                     .node = node->id,
                     .outcome = {.cause = EndCause::kNodeFault,
                                 .detail = "its node was revoked before it could be told to start it"},
                     .placed_at = attempt->placed_at},
        [](const Result<Decided>&) {});
  }
}

void NodeHub::on_prepared(const MemberPrepared& prepared) {
  const Attempt* attempt = hooks_.state().find_attempt(prepared.job, prepared.attempt);
  if (attempt != nullptr && attempt->may_go()) orders_.release_gang(*attempt);
}

void NodeHub::on_stopped(JobId job, uint32_t number) {
  const Attempt* attempt = hooks_.state().find_attempt(job, number);
  if (attempt != nullptr) orders_.stop_everywhere(*attempt);
}

void NodeHub::on_fault_changed(const DeviceFaultChanged& fault) {
  const hub::Connection* connection = connections_.of(fault.node);
  if (connection != nullptr && !fault.by.empty()) faults_.order_clear(*connection, fault.device);
}

/// An operator wants the device back in service: what another scheduler left there ends now.
void NodeHub::take_back(NodeId node, uint32_t slot) {
  const hub::Connection* connection = connections_.of(node);
  if (connection == nullptr) return;
  for (const hub::Connection::Foreign& foreign : connection->foreign) {
    if (((foreign.slots >> slot) & 1) != 0)
      orders_.stop(*connection, foreign.key, foreign.placed_at, StopReason::kAbandoned);
  }
  fence_.ask(*connection, slot);
}

// Time.

void NodeHub::flush() {
  send_starts();
  connections_.send_acks();
}

void NodeHub::check_leases() {
  leases_.check();
  connections_.for_each_node([this](const hub::Connection& connection) { fence_.ask_late(connection); });
  session_router_.tick();
  flush();
}

}  // namespace gpusched
