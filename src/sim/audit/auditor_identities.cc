// The auditor's reference of nodes' identities: a ticket makes one node, once, and what is revoked stays so,
// over every crash and at every copy of the state.
#include "base/limits.h"
#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

std::string name_of(NodeIdentityId identity) { return "node identity " + std::to_string(identity.value); }
std::string name_of(NodeTicketId ticket) { return "node token " + std::to_string(ticket.value); }

template <typename Record>
Digest record_digest(const Record& record) {
  Digest digest;
  mix_fields(digest, record);
  return digest;
}

}  // namespace

void Auditor::on(const NodeTicketCreated& event) {
  const NodeTicket& ticket = *event.ticket;
  if (ticket.is_used()) fail(name_of(ticket.id) + " is made as a used one");
  std::erase_if(node_tickets_,
                [&](const auto& each) { return each.second.node == ticket.node && !each.second.is_used(); });
  if (!node_tickets_.emplace(ticket.id, ticket).second) fail(name_of(ticket.id) + " is there twice");
}

void Auditor::on(const NodeTicketForgotten& event) {
  const auto ticket = node_tickets_.find(event.ticket);
  if (ticket == node_tickets_.end()) return fail(name_of(event.ticket) + " is forgotten, and was none");
  if (replica_.last.at < ticket->second.expires_at + limits::kNodeTicketsKept)
    fail(name_of(event.ticket) + " is forgotten too early");
  node_tickets_.erase(ticket);
}

void Auditor::on(const NodeAdmitted& event) {
  const NodeIdentity& identity = *event.identity;
  const auto ticket = node_tickets_.find(event.ticket);
  if (ticket == node_tickets_.end()) return fail(name_of(identity.id) + " comes of no ticket");
  if (!used_tickets_.insert(event.ticket).second) fail(name_of(event.ticket) + " is used twice");
  if (ticket->second.node != identity.node) fail(name_of(event.ticket) + " makes another node");
  if (ticket->second.expires_at <= identity.admitted_at)
    fail(name_of(event.ticket) + " is used after its end");
  if (revoked_identities_.contains(identity.id)) fail(name_of(identity.id) + " was revoked");
  ticket->second.used_by = identity.key;
  ticket->second.identity = identity.id;
  node_identities_.insert_or_assign(identity.node, identity);
}

void Auditor::on(const NodeRenewed& event) {
  if (revoked_identities_.contains(event.identity))
    fail(name_of(event.identity) + " is revoked, and renewed");
  for (auto& [node, identity] : node_identities_) {
    if (identity.id != event.identity) continue;
    identity.key = event.key;
    identity.renewed_at = event.at;
    identity.expires_at = event.expires_at;
    return;
  }
  fail(name_of(event.identity) + " is renewed, and is nobody's");
}

void Auditor::on(const NodeRevoked& event) {
  const auto identity = node_identities_.find(event.node);
  if (identity == node_identities_.end()) return fail(event.node + " is revoked without an identity");
  if (!revoked_identities_.insert(identity->second.id).second)
    fail(name_of(identity->second.id) + " is revoked twice");
  identity->second.revoked_at = event.at;
  identity->second.revoked_by = event.by;
  std::erase_if(node_tickets_,
                [&](const auto& each) { return each.second.node == event.node && !each.second.is_used(); });
}

void Auditor::on_node_revoke_accepted(NodeIdentityId identity) {
  if (identity.valid() && !revoked_identities_.contains(identity))
    fail("a client was told that " + name_of(identity) + " is revoked");
}

void Auditor::on_node_identity_told(const std::string& node, const NodeIdentity* told) {
  if (told == nullptr) {
    if (node_identities_.contains(node)) fail("a client does not find the identity of " + node);
    return;
  }
  if (revoked_identities_.contains(told->id) && !told->is_revoked())
    fail("a client reads " + name_of(told->id) + ", which is revoked, as alive");
}

NodeIdentityId Auditor::identity_of(const std::string& node) const {
  const auto identity = node_identities_.find(node);
  return identity == node_identities_.end() ? NodeIdentityId{} : identity->second.id;
}

void Auditor::check_node_identities(const char* whose, const State& state) {
  const NodeIdentityTable& table = state.node_identities;
  if (table.identities().size() != node_identities_.size() || table.tickets().size() != node_tickets_.size())
    fail(std::string(whose) + " has another number of nodes' identities or tokens");
  for (const auto& [node, identity] : table.identities()) {
    const auto reference = node_identities_.find(node);
    if (revoked_identities_.contains(identity.id) && !identity.is_revoked())
      fail(std::string(whose) + " has " + name_of(identity.id) + " as alive, which was revoked");
    if (reference == node_identities_.end() || record_digest(reference->second) != record_digest(identity))
      fail(std::string(whose) + " has another " + name_of(identity.id) + " than the books");
  }
  for (const auto& [id, ticket] : table.tickets()) {
    const auto reference = node_tickets_.find(id);
    if (used_tickets_.contains(id) && !ticket.is_used())
      fail(std::string(whose) + " has " + name_of(id) + " as unused, which was used");
    if (reference == node_tickets_.end() || record_digest(reference->second) != record_digest(ticket))
      fail(std::string(whose) + " has another " + name_of(id) + " than the books");
  }
}

}  // namespace gpusched::sim
