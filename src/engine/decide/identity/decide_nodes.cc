#include "base/check.h"
#include "base/limits.h"
#include "engine/decide/identity/nodes.h"

// Nodes' identities: leave to become a node, used once; certificates that are renewed; and their end.
namespace gpusched::rules {
namespace {

/// Tickets that one command forgets: more than it makes, so that they become fewer.
constexpr std::size_t kForgottenAtOnce = 8;

Applied refuse(RejectionCode code) { return {.rejection = Rejection{.code = code}}; }

bool knows_identities(const State& state) { return state.config.feature_level >= 10; }

/// A ticket is one key's: whoever lost the answer to it asks again with the same key, and nobody else can.
Applied admit_again(const State& state, const AdmitNode& command, const NodeTicket& ticket, Stamp stamp,
                    Events& events) {
  const NodeIdentity* const identity = state.node_identities.find(ticket.identity);
  if (ticket.used_by != command.key || identity == nullptr) return refuse(RejectionCode::kNodeTicketUsed);
  if (identity->is_revoked()) return refuse(RejectionCode::kNodeRevoked);
  events.push_back(NodeRenewed{
      .identity = identity->id, .key = command.key, .at = stamp.at, .expires_at = command.expires_at});
  return {};
}

Applied admit_by_ticket(const State& state, const AdmitNode& command, Stamp stamp, Events& events) {
  const NodeTicket* const ticket = state.node_identities.find_ticket(command.ticket);
  if (ticket == nullptr || ticket->node != command.node) return refuse(RejectionCode::kNodeTicketNotFound);
  if (ticket->expires_at <= stamp.at) return refuse(RejectionCode::kNodeTicketExpired);
  if (ticket->is_used()) return admit_again(state, command, *ticket, stamp, events);
  const bool is_new = state.node_identities.find(command.node) == nullptr;
  if (is_new && state.node_identities.identities().size() >= limits::kNodeIdentitiesMax)
    return refuse(RejectionCode::kNodeIdentityLimit);
  events.push_back(NodeAdmitted{.ticket = ticket->id,
                                .identity = NodeIdentity{.id = NodeIdentityId{stamp.sequence},
                                                         .node = command.node,
                                                         .key = command.key,
                                                         .admitted_by = ticket->created_by,
                                                         .admitted_at = stamp.at,
                                                         .renewed_at = {},
                                                         .expires_at = command.expires_at,
                                                         .revoked_at = {},
                                                         .revoked_by = {}}});
  return {.rejection = {}, .first_id = stamp.sequence, .id_count = 1};
}

Applied renew(const State& state, const AdmitNode& command, Stamp stamp, Events& events) {
  const NodeIdentity* const identity = state.node_identities.find(command.identity);
  if (identity == nullptr || identity->node != command.node)
    return refuse(RejectionCode::kNodeIdentityNotFound);
  if (identity->is_revoked()) return refuse(RejectionCode::kNodeRevoked);
  events.push_back(NodeRenewed{
      .identity = identity->id, .key = command.key, .at = stamp.at, .expires_at = command.expires_at});
  return {};
}

}  // namespace

Applied create_node_ticket(const State& state, const CreateNodeTicket& command, Stamp stamp, Events& events) {
  if (!knows_identities(state)) return refuse(RejectionCode::kStale);
  const NodeIdentityTable& known = state.node_identities;
  if (known.find_ticket(command.prefix) != nullptr) return refuse(RejectionCode::kNodeTicketExists);
  if (command.expires_at <= stamp.at) return refuse(RejectionCode::kNodeTicketExpiry);
  const std::vector<NodeTicketId> over = known.expired(stamp.at - limits::kNodeTicketsKept, kForgottenAtOnce);
  if (known.tickets().size() - over.size() >= limits::kNodeTicketsMax)
    return refuse(RejectionCode::kNodeIdentityLimit);
  for (const NodeTicketId ticket : over) events.push_back(NodeTicketForgotten{.ticket = ticket});
  events.push_back(NodeTicketCreated{.ticket = NodeTicket{.id = NodeTicketId{stamp.sequence},
                                                          .node = command.node,
                                                          .prefix = command.prefix,
                                                          .hash = command.hash,
                                                          .created_by = command.by,
                                                          .created_at = stamp.at,
                                                          .expires_at = command.expires_at,
                                                          .used_by = {},
                                                          .identity = {}}});
  return {.rejection = {}, .first_id = stamp.sequence, .id_count = 1};
}

Applied admit_node(const State& state, const AdmitNode& command, Stamp stamp, Events& events) {
  if (!knows_identities(state)) return refuse(RejectionCode::kStale);
  if (command.expires_at <= stamp.at) return refuse(RejectionCode::kStale);
  return command.ticket.valid() ? admit_by_ticket(state, command, stamp, events)
                                : renew(state, command, stamp, events);
}

Applied revoke_node(const State& state, const RevokeNode& command, Stamp stamp, Events& events) {
  const NodeIdentity* const identity = state.node_identities.find(command.node);
  if (identity == nullptr) return refuse(RejectionCode::kNodeIdentityNotFound);
  if (identity->is_revoked()) return refuse(RejectionCode::kNodeRevoked);
  events.push_back(NodeRevoked{.node = command.node, .at = stamp.at, .by = command.by});
  return {};
}

}  // namespace gpusched::rules

namespace gpusched {

void on(State& state, const NodeTicketCreated& event) {
  state.node_identities.remove_unused_of(event.ticket->node);
  const bool added = state.node_identities.add(*event.ticket);
  CHECK(added);  // A sequence number is used once, and `decide` looked for the prefix.
}
void on(State& state, const NodeTicketForgotten& event) { state.node_identities.remove(event.ticket); }
void on(State& state, const NodeAdmitted& event) {
  state.node_identities.use(event.ticket, *event.identity);
  const bool put = state.node_identities.put(*event.identity);
  CHECK(put);
}
void on(State& state, const NodeRenewed& event) {
  state.node_identities.renew(event.identity, event.key, event.at, event.expires_at);
}
void on(State& state, const NodeRevoked& event) {
  state.node_identities.remove_unused_of(event.node);
  state.node_identities.revoke(event.node, event.at, event.by);
}

}  // namespace gpusched
