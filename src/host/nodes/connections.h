#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "engine/engine.h"
#include "host/core/interfaces.h"
#include "host/nodes/rules/heat.h"
#include "model/state.h"

namespace gpusched {

using SessionId = uint64_t;

/// The node hub's parts. Each is owned by NodeHub, used on its thread only, and has beside the agent's part
/// of the same name (src/node/core) what one feature of the protocol needs.
namespace hub {

/// Functions of the host's core for the parts.
struct Hooks {
  std::function<void(Command, Decision)> propose;
  std::function<const State&()> state;
  std::function<Time()> now;  ///< The journal's time.
  std::function<Time()> monotonic;
};

/// One agent's stream.
struct Connection {
  /// Attempt of another scheduler: it is left alone until an operator takes its devices back.
  struct Foreign {
    AttemptKey key;
    Time placed_at;
    uint64_t slots = 0;
  };

  void send(const v1::SchedulerMessage& message) const { peer->send(message); }
  /// Ends the stream behind the words why.
  void refuse(const std::string& code, const std::string& message) const;
  /// The state's slot of the agent's device, and the agent's number of a slot's device.
  std::optional<uint32_t> slot_of(uint32_t index) const;
  std::optional<uint32_t> agent_index(uint32_t slot) const;

  SessionId id = 0;
  std::shared_ptr<NodeSession> peer;
  NodeId node;  ///< Once registered.
  bool registering = false;
  std::vector<uint32_t> slots;              ///< The state's slot of each of the agent's devices.
  std::vector<HeatMeter> heat;              ///< As `slots`.
  bool takes_members = false;               ///< Takes StartMembers.
  std::vector<uint64_t> acks;               ///< Reports to be acknowledged with the next flush.
  std::size_t asked = 0;                    ///< Proposals for it that are not decided.
  std::size_t log_reads = 0;                ///< Pieces of output that it was asked for and did not send.
  std::string boot_id;                      ///< Boot that it registered with.
  uint64_t process = 0;                     ///< Number of the agent's process; 0: unknown.
  uint64_t beats = 0;                       ///< Heartbeats that came.
  uint64_t validation = 0;                  ///< The newest validation report.
  std::map<uint32_t, uint64_t> conditions;  ///< The newest condition report, by the agent's device index.
  std::map<uint32_t, uint64_t> faults;      ///< Likewise of faults.
  std::vector<Foreign> foreign;
};

/// Reports that agents repeat until they are decided: kind, whose, which.
enum class Ask : uint8_t { kReport, kSaved, kHeat, kBusy, kBack };
using AskKey = std::tuple<Ask, uint64_t, uint64_t, uint64_t>;

/// All agents' streams: which is whose node's, what is proposed for each and not decided, and what is to be
/// acknowledged. A node has one stream at most: a new one takes the place of the old.
class Connections {
 public:
  explicit Connections(const Hooks& hooks) : hooks_(hooks) {}

  SessionId open(std::shared_ptr<NodeSession> peer);
  /// Null: it is closed.
  Connection* find(SessionId id);
  /// The node's stream; null: it has none.
  Connection* of(NodeId node);
  /// The node's, from now on. It has no other.
  void bind(Connection& connection, NodeId node);
  /// Forgets the stream. The node that has none any more, if it was one's.
  std::optional<NodeId> close(SessionId id);
  std::size_t node_count() const { return by_node_.size(); }
  /// Calls `visit` with the stream of each connected node.
  template <typename Visit>
  void for_each_node(Visit&& visit) {
    for (const auto& [node, connection] : by_node_) visit(*connection);
  }
  /// The state's node of a registered stream: as long as there is one, so is the other.
  const Node& node_of(const Connection& connection) const;

  /// Proposes for the agent, unless the same is proposed already or too much of the agent's is undecided:
  /// then it will say it again.
  void propose_once(Connection& connection, const AskKey& key, Command command, Decision decision = {});
  /// The report is durable, or says nothing: the agent may forget it.
  void acknowledge(SessionId id, uint64_t report);
  /// Sends the acknowledgements, one message an agent.
  void send_acks();

 private:
  const Hooks& hooks_;
  std::map<SessionId, Connection> connections_;
  std::map<NodeId, Connection*> by_node_;
  std::set<AskKey> asked_;  ///< Proposed and not decided.
  std::vector<SessionId> to_acknowledge_;
  SessionId next_id_ = 1;
};

}  // namespace hub
}  // namespace gpusched
