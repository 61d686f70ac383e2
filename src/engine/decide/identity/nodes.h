#pragma once

#include "engine/engine.h"

/// The rules about nodes' identities, for `decide`, and what their events change, for `evolve`.
namespace gpusched::rules {

Applied create_node_ticket(const State& state, const CreateNodeTicket& command, Stamp stamp, Events& events);
Applied admit_node(const State& state, const AdmitNode& command, Stamp stamp, Events& events);
Applied revoke_node(const State& state, const RevokeNode& command, Stamp stamp, Events& events);

}  // namespace gpusched::rules

namespace gpusched {

void on(State& state, const NodeTicketCreated& event);
void on(State& state, const NodeTicketForgotten& event);
void on(State& state, const NodeAdmitted& event);
void on(State& state, const NodeRenewed& event);
void on(State& state, const NodeRevoked& event);

}  // namespace gpusched
