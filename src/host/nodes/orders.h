#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "engine/engine.h"
#include "gpusched/v1/node.pb.h"
#include "host/nodes/attempt_table.h"
#include "host/nodes/connections.h"
#include "host/nodes/rules/start_orders.h"

namespace gpusched::hub {

/// Orders about attempts: to start, to begin as a gang, to run for longer or shorter, to stop. Sent to the
/// agents that are connected; the others are told when they register. None is acknowledged: an agent's
/// reports show what became of it.
class Orders {
 public:
  struct Limits {
    Duration lease;
    Duration grace;              ///< Between SIGTERM and SIGKILL.
    Duration preempt_grace_max;  ///< The longest that a job which is ended for another one may ask for.
  };
  Orders(const Hooks& hooks, Connections& connections, AttemptTable& attempts, Limits limits)
      : hooks_(hooks), connections_(connections), attempts_(attempts), limits_(limits) {}

  /// Its agents are told by `send_starts`, in its turn.
  void on_placed(const Attempt& attempt);
  /// Tells a bounded number of agents of starts that they do not know of. While `starts_wait` it is to be
  /// called again, in a later turn.
  void send_starts();
  bool starts_wait() const { return !pending_starts_.empty(); }
  /// Tells the agent of these members, which are all its own, what they are to start.
  void start(const Connection& connection, const Attempt& attempt, const std::vector<uint32_t>& members);
  void on_registered(const Node& node) { shared_starts_.node_registered(node.id, node.reached_at()); }

  /// All members of a gang are prepared, once for each gang.
  void release_gang(const Attempt& attempt);
  static void release(const Connection& connection, const Attempt& attempt, uint32_t member);
  void stop_everywhere(const Attempt& attempt);
  void stop(const Connection& connection, const AttemptKey& key, Time placed_at, StopReason reason) const;
  void on_updated(JobId job, bool new_max_runtime);
  /// Sends a running attempt's changed time limit.
  void change(JobId job);

  /// Has the node's agent run its reboot command, or its checks. False when it is not connected.
  bool reboot(NodeId node, const std::string& reason);
  bool validate(NodeId node);

 private:
  v1::SchedulerMessage stop_order(const AttemptKey& key, Time placed_at, StopReason reason) const;

  const Hooks& hooks_;
  Connections& connections_;
  AttemptTable& attempts_;
  Limits limits_;
  PendingStarts pending_starts_;
  SharedStarts shared_starts_;
};

}  // namespace gpusched::hub
