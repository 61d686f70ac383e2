#include "model/identity/node_identity_table.h"

#include "base/check.h"
#include "base/limits.h"
#include "model/identity/access_key.h"

namespace gpusched {
namespace {

bool is_node_name(std::string_view name) { return !name.empty() && name.size() <= limits::kNameBytesMax; }

}  // namespace

bool is_possible(const NodeTicket& ticket) {
  if (!is_node_name(ticket.node) || !is_key_prefix(ticket.prefix)) return false;
  if (ticket.hash.view().size() != limits::kKeyHashBytes || !ticket.expires_at.valid()) return false;
  const std::size_t used = ticket.used_by.view().size();
  return ticket.is_used() ? used == limits::kPublicKeyHashBytes : used == 0;
}

bool is_possible(const NodeIdentity& identity) {
  return is_node_name(identity.node) && identity.key.view().size() == limits::kPublicKeyHashBytes &&
         identity.expires_at.valid() && identity.admitted_by.size() <= limits::kNameBytesMax;
}

const NodeTicket* NodeIdentityTable::find_ticket(NodeTicketId id) const {
  const auto found = tickets_.find(id);
  return found == tickets_.end() ? nullptr : &found->second;
}

const NodeTicket* NodeIdentityTable::find_ticket(std::string_view prefix) const {
  const auto found = by_prefix_.find(prefix);
  return found == by_prefix_.end() ? nullptr : find_ticket(found->second);
}

const NodeIdentity* NodeIdentityTable::find(std::string_view node) const {
  const auto found = identities_.find(node);
  return found == identities_.end() ? nullptr : &found->second;
}

const NodeIdentity* NodeIdentityTable::find(NodeIdentityId id) const {
  const auto found = names_.find(id);
  return found == names_.end() ? nullptr : find(found->second);
}

std::vector<NodeTicketId> NodeIdentityTable::expired(Time until, std::size_t most) const {
  std::vector<NodeTicketId> found;
  for (const auto& [end, id] : by_end_) {
    if (end > until || found.size() == most) break;
    found.push_back(id);
  }
  return found;
}

bool NodeIdentityTable::add(NodeTicket ticket) {
  if (tickets_.contains(ticket.id) || by_prefix_.contains(ticket.prefix)) return false;
  by_prefix_.emplace(ticket.prefix, ticket.id);
  by_node_.emplace(ticket.node, ticket.id);
  by_end_.emplace(ticket.expires_at, ticket.id);
  const NodeTicketId id = ticket.id;
  tickets_.emplace(id, std::move(ticket));
  return true;
}

void NodeIdentityTable::remove(NodeTicketId id) {
  const auto found = tickets_.find(id);
  CHECK(found != tickets_.end());
  by_prefix_.erase(found->second.prefix);
  by_node_.erase({found->second.node, id});
  by_end_.erase({found->second.expires_at, id});
  tickets_.erase(found);
}

void NodeIdentityTable::remove_unused_of(std::string_view node) {
  std::vector<NodeTicketId> unused;
  for (auto each = by_node_.lower_bound({std::string(node), NodeTicketId{}});
       each != by_node_.end() && each->first == node; ++each) {
    if (!tickets_.at(each->second).is_used()) unused.push_back(each->second);
  }
  for (const NodeTicketId id : unused) remove(id);
}

bool NodeIdentityTable::put(NodeIdentity identity) {
  if (names_.contains(identity.id)) return false;
  const auto older = identities_.find(identity.node);
  if (older != identities_.end()) names_.erase(older->second.id);
  names_.emplace(identity.id, identity.node);
  std::string name = identity.node;
  identities_.insert_or_assign(std::move(name), std::move(identity));
  return true;
}

void NodeIdentityTable::use(NodeTicketId id, const NodeIdentity& identity) {
  const auto found = tickets_.find(id);
  CHECK(found != tickets_.end());
  CHECK(!found->second.is_used());  // It is used once.
  found->second.used_by = identity.key;
  found->second.identity = identity.id;
}

NodeIdentity& NodeIdentityTable::at(std::string_view node) {
  const auto found = identities_.find(node);
  CHECK(found != identities_.end());
  return found->second;
}

void NodeIdentityTable::renew(NodeIdentityId id, const Blob& key, Time at_time, Time expires_at) {
  const auto name = names_.find(id);
  CHECK(name != names_.end());
  NodeIdentity& identity = at(name->second);
  CHECK(!identity.is_revoked());
  identity.key = key;
  identity.renewed_at = at_time;
  identity.expires_at = expires_at;
}

void NodeIdentityTable::revoke(std::string_view node, Time at_time, const std::string& by) {
  NodeIdentity& identity = at(node);
  CHECK(!identity.is_revoked());  // It is revoked once, and never again alive.
  identity.revoked_at = at_time;
  identity.revoked_by = by;
}

}  // namespace gpusched
