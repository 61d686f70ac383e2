#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "host/nodes/connections.h"

namespace gpusched::hub {

/// The nodes' leases. A node is heard by any word of its agent; one that is not heard for as long as a lease
/// loses it, which is proposed, and has it back with its next heartbeat. A heartbeat is answered only while
/// the node has its lease by what is durable: the answer promises that silence counts from now at the
/// earliest.
class Leases {
 public:
  Leases(const Hooks& hooks, Connections& connections, Duration lease, Duration heartbeat);

  Duration lease() const { return lease_; }
  Duration heartbeat() const { return heartbeat_; }

  /// Every ready node gets a fresh lease: the scheduler itself was away.
  void begin();
  void heard(NodeId node) { heard_at_[node] = hooks_.monotonic(); }
  /// It has a lease to lose from here on, also when its stream broke before it was answered.
  void registered(NodeId node);
  void forget(NodeId node) { heard_at_.erase(node); }
  /// Its agent spoke within the last heartbeats.
  bool was_heard_just_now(NodeId node) const;

  void answer(const Connection& connection, uint64_t sequence);
  /// A heartbeat of a node without its lease.
  void renew(Connection& connection, uint64_t sequence);
  /// Proposes that nodes whose lease ran out are unreachable.
  void check();
  Time next_check() const { return next_check_; }

 private:
  const Hooks& hooks_;
  Connections& connections_;
  Duration lease_;
  Duration heartbeat_;
  std::map<NodeId, Time> heard_at_;  ///< Monotonic.
  std::set<NodeId> losing_;          ///< Nodes whose loss is proposed and not decided.
  Time next_check_ = kNever;
};

}  // namespace gpusched::hub
