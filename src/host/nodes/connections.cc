#include "host/nodes/connections.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/queue_limits.h"

namespace gpusched::hub {

void Connection::refuse(const std::string& code, const std::string& message) const {
  v1::SchedulerMessage reply;
  reply.mutable_refused()->set_code(code);
  reply.mutable_refused()->set_message(message);
  peer->send(reply);
  peer->close();
}

std::optional<uint32_t> Connection::slot_of(uint32_t index) const {
  if (index >= slots.size()) return std::nullopt;
  return slots[index];
}

std::optional<uint32_t> Connection::agent_index(uint32_t slot) const {
  const auto it = std::find(slots.begin(), slots.end(), slot);
  if (it == slots.end()) return std::nullopt;
  return static_cast<uint32_t>(it - slots.begin());
}

SessionId Connections::open(std::shared_ptr<NodeSession> peer) {
  const SessionId id = next_id_++;
  Connection& connection = connections_[id];
  connection.id = id;
  connection.peer = std::move(peer);
  return id;
}

Connection* Connections::find(SessionId id) {
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : &it->second;
}

Connection* Connections::of(NodeId node) {
  const auto it = by_node_.find(node);
  return it == by_node_.end() ? nullptr : it->second;
}

void Connections::bind(Connection& connection, NodeId node) {
  CHECK(!connection.node.valid());
  CHECK(by_node_.try_emplace(node, &connection).second);
  connection.node = node;
}

std::optional<NodeId> Connections::close(SessionId id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return std::nullopt;
  const NodeId node = it->second.node;
  if (node.valid()) CHECK(by_node_.erase(node) == 1);
  connections_.erase(it);
  if (!node.valid()) return std::nullopt;
  return node;
}

const Node& Connections::node_of(const Connection& connection) const {
  const Node* node = hooks_.state().find_node(connection.node);
  CHECK(node != nullptr);
  return *node;
}

void Connections::propose_once(Connection& connection, const AskKey& key, Command command,
                               Decision decision) {
  if (connection.asked >= limits::kAgentAsksMax || !asked_.insert(key).second) return;
  connection.asked += 1;
  hooks_.propose(std::move(command), [this, id = connection.id, key,
                                      decision = std::move(decision)](const Result<Decided>& decided) {
    asked_.erase(key);
    if (Connection* asking = find(id); asking != nullptr) asking->asked -= 1;
    if (decision) decision(decided);
  });
}

void Connections::acknowledge(SessionId id, uint64_t report) {
  Connection* connection = find(id);
  if (connection == nullptr) return;
  if (connection->acks.empty()) to_acknowledge_.push_back(id);
  connection->acks.push_back(report);
}

void Connections::send_acks() {
  for (const SessionId id : to_acknowledge_) {
    Connection* connection = find(id);
    if (connection == nullptr) continue;
    v1::SchedulerMessage message;
    for (const uint64_t report : connection->acks) message.mutable_ack()->add_report_ids(report);
    connection->acks.clear();
    connection->send(message);
  }
  to_acknowledge_.clear();
}

}  // namespace gpusched::hub
