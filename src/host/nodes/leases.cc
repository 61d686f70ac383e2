#include "host/nodes/leases.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::hub {
namespace {

/// How often leases are looked at.
constexpr Duration kCheckInterval = seconds(1);
/// A connected agent that was silent for so many heartbeats may have been followed by another one.
constexpr int64_t kRivalBeats = 2;

}  // namespace

Leases::Leases(const Hooks& hooks, Connections& connections, Duration lease, Duration heartbeat)
    : hooks_(hooks),
      connections_(connections),
      lease_(lease),
      heartbeat_(std::min(heartbeat, Duration{lease.ns / 3})) {
  CHECK(heartbeat_.ns > 0);
  CHECK(lease_.ns > 0);
}

void Leases::begin() {
  const Time now = hooks_.monotonic();
  for (const Node& node : hooks_.state().nodes) {
    if (node.state == NodeState::kReady) heard_at_[node.id] = now;
  }
  if (!heard_at_.empty()) next_check_ = now + kCheckInterval;
}

void Leases::registered(NodeId node) {
  const Time now = hooks_.monotonic();
  heard_at_[node] = now;
  next_check_ = std::min(next_check_, now + kCheckInterval);
}

bool Leases::was_heard_just_now(NodeId node) const {
  const auto heard = heard_at_.find(node);
  const Time at = heard == heard_at_.end() ? Time{} : heard->second;
  return hooks_.monotonic() - at < heartbeat_ * kRivalBeats;
}

void Leases::answer(const Connection& connection, uint64_t sequence) {
  const Node* known = hooks_.state().find_node(connection.node);
  if (known == nullptr) return;  // It was removed meanwhile.
  if (known->state != NodeState::kReady || losing_.contains(connection.node)) return;
  v1::SchedulerMessage seen;
  seen.mutable_heartbeat_seen()->set_sequence(sequence);
  connection.send(seen);
}

void Leases::renew(Connection& connection, uint64_t sequence) {
  const NodeState state = connections_.node_of(connection).state;
  if (state == NodeState::kUnreachable || state == NodeState::kLost) {
    connections_.propose_once(connection, {Ask::kBack, connection.node.value, 0, 0},
                              NodeLeaseBack{.node = connection.node},
                              [this, id = connection.id, sequence](const Result<Decided>&) {
                                const Connection* back = connections_.find(id);
                                if (back != nullptr) answer(*back, sequence);
                              });
  } else if (state == NodeState::kDead) {
    // Declared dead while it was silent: what it runs must be settled by a registration.
    connection.refuse("stale", "the node was declared dead; register again");
  }
}

void Leases::check() {
  const Time now = hooks_.monotonic();
  next_check_ = now + kCheckInterval;
  for (const Node& node : hooks_.state().nodes) {
    if (node.state != NodeState::kReady) continue;
    const auto [heard, fresh] = heard_at_.try_emplace(node.id, now);
    if (fresh || now - heard->second < lease_ || losing_.contains(node.id)) continue;
    losing_.insert(node.id);
    hooks_.propose(NodeLeaseLost{.node = node.id},
                   [this, number = node.id](const Result<Decided>&) { losing_.erase(number); });
    heard->second = now;  // Not again before this proposal was decided.
  }
}

}  // namespace gpusched::hub
