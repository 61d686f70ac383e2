#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "engine/engine.h"
#include "host/core/interfaces.h"
#include "host/nodes/attempt_table.h"
#include "host/nodes/rules/heat.h"
#include "host/nodes/session_router.h"
#include "host/nodes/rules/start_orders.h"
#include "host/nodes/rules/watchdog.h"

namespace gpusched {

/// What a node last said of itself. Never journaled.
struct NodeTelemetry {
  struct Device {
    int32_t utilization_percent = 0;
    int64_t memory_used_mb = 0;
    int32_t temperature_celsius = 0;
    int32_t power_watts = 0;
    std::string draining_evidence;  ///< Why it is not released yet.
  };
  std::vector<Device> devices;    ///< By the state's slot.
  double cpu_utilization = 0;     ///< 0..1
  double memory_utilization = 0;  ///< 0..1
  bool connected = false;
  /// What attempts do that were ordered and do not run yet, such as pulling an image.
  std::map<AttemptKey, std::string> preparing;
};

/// The newest telemetry of every node, for readers on other threads. Thread-safe.
class TelemetryTable {
 public:
  void set(NodeId node, NodeTelemetry telemetry);
  void set_connected(NodeId node, bool connected);
  void set_evidence(NodeId node, uint32_t device, std::string evidence);
  NodeTelemetry get(NodeId node) const;
  void forget(NodeId node);

 private:
  mutable std::mutex mutex_;
  std::map<NodeId, NodeTelemetry> nodes_;
};

using SessionId = uint64_t;

/// Gives the configuration that is to hold the cluster's name: the state's, or, where it has none, the one
/// that was drawn. `wall`: now; a journal that begins knows that everything before is not its own.
void name_cluster(const State& state, Time wall, std::string drawn, EngineConfig& config);

/// Agents' sessions: turns what they say into commands, and events into orders. Owned by the host's core and
/// its thread. Everything may come twice; a report is acknowledged when what it said is durable.
class NodeHub {
 public:
  struct Hooks {
    std::function<void(Command, Decision)> propose;
    std::function<const State&()> state;
    std::function<Time()> now;  ///< The journal's time.
    std::function<Time()> monotonic;
  };
  /// `preempt_grace_max`: at most so much is a job given that asks for time when it is ended for another one.
  NodeHub(Hooks hooks, Duration lease, Duration heartbeat, Duration grace, Duration preempt_grace_max = {},
          HeatLimits heat = {}, WatchLimits watch = {});

  /// A stream whose peer proved that it may speak. Its first message must be Register.
  SessionId open(std::shared_ptr<NodeSession> session);
  void receive(SessionId id, const v1::AgentMessage& message);
  void closed(SessionId id);

  /// Sends the orders that an applied event asks for.
  void on_event(const Event& event);
  /// Sends the acknowledgements of a group.
  void flush();
  /// Names nodes whose lease ran out; proposes that they are unreachable. Asks again about devices that
  /// should be empty by now.
  void check_leases();
  Time next_check() const { return next_check_; }
  /// Tells a bounded number of agents of starts that they do not know of. While `starts_wait` it is to be
  /// called again, in a later turn.
  void send_starts();
  bool starts_wait() const { return !pending_starts_.empty(); }
  /// Every ready node gets a fresh lease: the scheduler itself was away.
  void begin();

  /// Asks the attempt's node for a piece of its output. `done` gets kUnavailable when the node is not
  /// connected.
  void read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done);

  /// Has the node's agent run its reboot command, or its checks. False when it is not connected.
  bool reboot(NodeId node, const std::string& reason);
  bool validate(NodeId node);
  /// Interactive sessions and files.
  SessionRouter& sessions() { return session_router_; }

  std::shared_ptr<TelemetryTable> telemetry() const { return telemetry_; }
  std::size_t connected_count() const { return by_node_.size(); }

 private:
  struct Session {
    std::shared_ptr<NodeSession> peer;
    NodeId node;  ///< Once registered.
    bool registering = false;
    std::vector<uint32_t> slots;  ///< The state's slot of each of the agent's devices.
    std::vector<HeatMeter> heat;  ///< As `slots`.
    bool takes_members = false;   ///< Takes StartMembers.
    std::vector<uint64_t> acks;
    std::size_t asked = 0;                    ///< Of `asked_`.
    std::size_t log_reads = 0;                ///< Of `logs_`.
    std::string boot_id;                      ///< That it registered with.
    uint64_t process = 0;                     ///< Of the agent; 0: it does not tell.
    uint64_t validation = 0;                  ///< The newest validation report.
    std::map<uint32_t, uint64_t> conditions;  ///< The newest condition report, by the agent's device index.
    std::map<uint32_t, uint64_t> faults;      ///< Likewise of faults.
    uint64_t beats = 0;                       ///< Heartbeats that came.
    struct Foreign {
      AttemptKey key;
      Time placed_at;
      uint64_t slots = 0;
    };
    /// What its agent runs for another scheduler: it is left alone until an operator takes its devices back.
    std::vector<Foreign> foreign = {};
  };

  Session* find(SessionId id);
  Session* session_of(NodeId node);
  void forget(NodeId node);
  void refuse(Session& session, const std::string& code, const std::string& message);
  void on_register(SessionId id, const v1::Register& message);
  std::string problem_of_cluster(const v1::Register& message) const;
  bool is_foreign(const v1::AttemptOnNode& known) const;
  void take_back(NodeId node, uint32_t slot);
  /// Another agent of this node is connected and was heard just now.
  bool has_rival(const v1::Register& message);
  void registered(SessionId id, const v1::Register& message, const Decided& decided);
  void reconcile(Session& session, const v1::Register& message);
  void on_heartbeat(SessionId id, const v1::Heartbeat& message);
  /// Names devices that became too hot for new work, or have cooled.
  void note_heat(SessionId id, const v1::Heartbeat& message);
  void note_saved(SessionId id, const v1::Heartbeat& message);
  /// Compares what running attempts do with what they may.
  void watch(SessionId id, const v1::Heartbeat& message);
  void watch_attempt(const Attempt& attempt, hub::AttemptRow& row);
  const WatchPolicy& watch_policy(const Job& job, hub::AttemptRow& row) const;
  void answer_heartbeat(SessionId id, NodeId node, uint64_t sequence);
  void on_report(SessionId id, const v1::Report& report);
  std::optional<Command> command_of_report(Session& session, const v1::Report& report);
  std::optional<Command> command_of_fault(Session& session, const v1::Report& report);
  void order_clear(Session& session, uint32_t slot);
  void on_draining(Session& session, const v1::Draining& draining, SessionId id, uint64_t report);
  void on_log_chunk(const v1::LogChunk& chunk);
  void acknowledge(SessionId id, uint64_t report);
  /// What agents repeat until it is decided: kind, whose, which.
  enum class Ask : uint8_t { kReport, kSaved, kHeat, kBusy, kBack };
  using AskKey = std::tuple<Ask, uint64_t, uint64_t, uint64_t>;
  /// Proposes for the session, unless the same is proposed already or too much of the session's is undecided:
  /// then the agent will say it again.
  void propose_once(SessionId id, const AskKey& key, Command command, Decision decision = {});
  /// Another node has the attempt: this one's word on its end is not taken, and it must not forget it.
  bool is_of_another_node(const AttemptEnded& ended) const;
  /// An attempt has the device in this very generation.
  bool is_held(const DeviceReleased& release) const;
  /// Tells the agent of these members, which are all its own, what they are to start.
  void order_start(Session& session, const Attempt& attempt, const std::vector<uint32_t>& members);
  void release_gang(Session& session, const Attempt& attempt, uint32_t member);
  void stop_everywhere(JobId job, uint32_t attempt);
  v1::SchedulerMessage stop_order(const AttemptKey& key, Time placed_at, StopReason reason) const;
  void order_stop(Session& session, const AttemptKey& key, Time placed_at, StopReason reason);
  void order_change(JobId job);
  void check_releases(Session& session);
  /// About the whole device, or one attempt's share of it.
  void ask_release(const Session& session, uint32_t slot, const AttemptKey& share_of,
                   v1::SchedulerMessage& check);
  std::optional<uint32_t> agent_index(const Session& session, uint32_t slot) const;
  std::optional<uint32_t> slot_of(const Session& session, uint32_t index) const;

  Hooks hooks_;
  Duration lease_;
  Duration heartbeat_;
  Duration grace_;
  Duration preempt_grace_max_;
  HeatLimits heat_;
  WatchLimits watch_;
  hub::AttemptTable attempts_;
  std::map<SessionId, Session> sessions_;
  std::map<NodeId, SessionId> by_node_;
  std::map<NodeId, Time> heard_at_;  ///< Monotonic.
  std::set<AskKey> asked_;           ///< Proposed and not decided.
  std::set<NodeId> losing_;          ///< Whose lease is taken away by a proposal that is not decided.
  std::vector<SessionId> to_acknowledge_;
  SessionId next_session_ = 1;
  uint64_t next_log_request_ = 1;
  struct PendingLog {
    NodeId node;
    std::function<void(Result<v1::LogChunk>)> done;
  };
  std::map<uint64_t, PendingLog> logs_;
  SessionRouter session_router_;
  Time next_check_ = kNever;
  PendingStarts pending_starts_;
  SharedStarts shared_starts_;
  std::shared_ptr<TelemetryTable> telemetry_ = std::make_shared<TelemetryTable>();
};

}  // namespace gpusched
