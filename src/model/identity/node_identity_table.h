#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/identity/node_identity.h"

namespace gpusched {

/// Nodes' tickets and identities, with their indexes. A name has one identity, the newest, for ever: a
/// revoked one stays until the name is admitted again.
class NodeIdentityTable {
 public:
  /// In the order of their ids, and of their names.
  const std::map<NodeTicketId, NodeTicket>& tickets() const { return tickets_; }
  const std::map<std::string, NodeIdentity, std::less<>>& identities() const { return identities_; }
  /// Null when there is none, as below.
  const NodeTicket* find_ticket(NodeTicketId id) const;
  const NodeTicket* find_ticket(std::string_view prefix) const;
  /// The one of the name, revoked or not.
  const NodeIdentity* find(std::string_view node) const;
  const NodeIdentity* find(NodeIdentityId id) const;
  /// Tickets that expired until then, the first ones first, at most so many.
  std::vector<NodeTicketId> expired(Time until, std::size_t most) const;

  // Helpers of `evolve` and of snapshots.
  /// False: another has the id or the prefix.
  bool add(NodeTicket ticket);
  void remove(NodeTicketId ticket);
  /// Those of the name that nobody used.
  void remove_unused_of(std::string_view node);
  /// In place of the name's older one. False: another has the id.
  bool put(NodeIdentity identity);
  /// Uses a ticket that exists.
  void use(NodeTicketId ticket, const NodeIdentity& identity);
  void renew(NodeIdentityId identity, const Blob& key, Time at, Time expires_at);
  void revoke(std::string_view node, Time at, const std::string& by);

 private:
  NodeIdentity& at(std::string_view node);

  std::map<NodeTicketId, NodeTicket> tickets_;
  std::map<std::string, NodeTicketId, std::less<>> by_prefix_;
  std::set<std::pair<std::string, NodeTicketId>> by_node_;
  std::set<std::pair<Time, NodeTicketId>> by_end_;
  std::map<std::string, NodeIdentity, std::less<>> identities_;
  std::map<NodeIdentityId, std::string> names_;
};

}  // namespace gpusched
