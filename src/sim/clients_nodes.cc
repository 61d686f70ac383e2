// Clients: who may be a node.
#include <string>
#include <utility>

#include "base/limits.h"
#include "sim/clients.h"

namespace gpusched::sim {
namespace {

Blob some_public_key(Prng& prng) {
  return Blob(std::string(limits::kPublicKeyHashBytes, static_cast<char>('a' + prng.below(3))));
}

}  // namespace

void Clients::identify_something() {
  Prng& prng = context_.prng;
  const std::string node = "node-" + std::to_string(prng.below(4));
  const uint64_t draw = prng.below(10);
  if (node_tickets_.empty() || draw < 3) return create_node_ticket(node);
  if (draw < 5) {
    if (!host_.up()) return;
    host_.read(0, [this, node](const Observer::View& view) {
      context_.auditor.on_node_identity_told(node, view.state.node_identities.find(node));
    });
    return;
  }
  const Time end = context_.auditor.replica().last.at + hours(24);
  Command command = RevokeNode{.node = node, .by = "client"};
  if (draw < 8) {
    const auto& [ticket, name] = node_tickets_[prng.below(node_tickets_.size())];
    command = AdmitNode{
        .ticket = ticket, .identity = {}, .node = name, .key = some_public_key(prng), .expires_at = end};
  } else if (draw < 9) {
    const NodeIdentityId identity = context_.auditor.identity_of(node);
    if (!identity.valid()) return;
    command = AdmitNode{
        .ticket = {}, .identity = identity, .node = node, .key = some_public_key(prng), .expires_at = end};
  }
  command = maybe_wild(std::move(command));
  const auto* const revoke = std::get_if<RevokeNode>(&command);
  const NodeIdentityId before =
      revoke == nullptr ? NodeIdentityId{} : context_.auditor.identity_of(revoke->node);
  call(
      command, [] {},
      [this, before](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        context_.auditor.on_answer(result->sequence);
        context_.auditor.on_node_revoke_accepted(before);
      },
      [](bool) {});
}

void Clients::create_node_ticket(const std::string& node) {
  Prng& prng = context_.prng;
  const CreateNodeTicket command{
      .node = node,
      .prefix = "prefix" + std::to_string(100 + next_node_ticket_++),
      .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
      .expires_at = context_.auditor.replica().last.at + seconds(prng.between(1, 600)),
      .by = "client"};
  call(
      maybe_wild(command), [] {},
      [this, node](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        context_.auditor.on_answer(result->sequence);
        node_tickets_.emplace_back(NodeTicketId{result->applied.first_id}, node);
      },
      [](bool) {});
}

}  // namespace gpusched::sim
