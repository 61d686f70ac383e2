#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/time.h"
#include "engine/engine.h"
#include "host/core/interfaces.h"
#include "host/nodes/activity.h"
#include "host/nodes/attempt_table.h"
#include "host/nodes/connections.h"
#include "host/nodes/faults.h"
#include "host/nodes/leases.h"
#include "host/nodes/orders.h"
#include "host/nodes/output.h"
#include "host/nodes/release_fence.h"
#include "host/nodes/reports.h"
#include "host/nodes/rules/heat.h"
#include "host/nodes/rules/registration.h"
#include "host/nodes/rules/watchdog.h"
#include "host/nodes/session_router.h"
#include "host/nodes/telemetry.h"

namespace gpusched {

/// Agents' sessions: turns what they say into commands, and events into orders. Owned by the host's core and
/// its thread. Everything may come twice; a report is acknowledged when what it said is durable.
///
/// It wires its parts (namespace hub) and does what needs several of them: registrations, heartbeats, events.
class NodeHub {
 public:
  using Hooks = hub::Hooks;
  /// `preempt_grace_max`: at most so much is a job given that asks for time when it is ended for another one.
  NodeHub(Hooks hooks, Duration lease, Duration heartbeat, Duration grace, Duration preempt_grace_max = {},
          HeatLimits heat = {}, WatchLimits watch = {});
  NodeHub(const NodeHub&) = delete;
  NodeHub& operator=(const NodeHub&) = delete;

  /// A stream whose peer proved that it may speak. Its first message must be Register.
  SessionId open(std::shared_ptr<NodeSession> session) { return connections_.open(std::move(session)); }
  void receive(SessionId id, const v1::AgentMessage& message);
  void closed(SessionId id);

  /// Sends the orders that an applied event asks for.
  void on_event(const Event& event);
  /// Sends the acknowledgements of a group.
  void flush();
  /// Names nodes whose lease ran out; proposes that they are unreachable. Asks again about devices that
  /// should be empty by now.
  void check_leases();
  Time next_check() const { return leases_.next_check(); }
  /// Tells a bounded number of agents of starts that they do not know of. While `starts_wait` it is to be
  /// called again, in a later turn.
  void send_starts() { orders_.send_starts(); }
  bool starts_wait() const { return orders_.starts_wait(); }
  /// Every ready node gets a fresh lease: the scheduler itself was away.
  void begin();

  /// Asks the attempt's node for a piece of its output. `done` gets kUnavailable when the node is not
  /// connected.
  void read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done) {
    output_.read(node, std::move(request), std::move(done));
  }

  /// Has the node's agent run its reboot command, or its checks. False when it is not connected.
  bool reboot(NodeId node, const std::string& reason) { return orders_.reboot(node, reason); }
  bool validate(NodeId node) { return orders_.validate(node); }
  /// Interactive sessions and files.
  SessionRouter& sessions() { return session_router_; }

  std::shared_ptr<TelemetryTable> telemetry() const { return telemetry_.table(); }
  std::size_t connected_count() const { return connections_.node_count(); }

 private:
  void on_register(hub::Connection& connection, const v1::Register& message);
  /// Another agent of this node is connected and was heard just now.
  bool has_rival(const v1::Register& message);
  void registered(SessionId id, const v1::Register& message, const Decided& decided);
  void reconcile(hub::Connection& connection, const v1::Register& message);
  void on_heartbeat(hub::Connection& connection, const v1::Heartbeat& message);
  void on_node_registered(NodeId node);
  void on_placed(const AttemptPlaced& placed);
  void on_prepared(const MemberPrepared& prepared);
  void on_stopped(JobId job, uint32_t attempt);
  void on_fault_changed(const DeviceFaultChanged& fault);
  void forget(NodeId node);
  void on_revoked(const std::string& node);
  bool is_revoked(const Node& node) const;
  void lose(NodeId node);
  void take_back(NodeId node, uint32_t slot);

  Hooks hooks_;
  hub::Connections connections_;
  hub::AttemptTable attempts_;
  hub::Telemetry telemetry_;
  hub::Leases leases_;
  hub::Orders orders_;
  hub::ReleaseFence fence_;
  hub::Faults faults_;
  hub::Reports reports_;
  hub::Activity activity_;
  hub::Output output_;
  SessionRouter session_router_;
};

}  // namespace gpusched
