#pragma once

#include "engine/engine.h"

/// The rules about keys, for `decide`, and what their events change, for `evolve`.
namespace gpusched::rules {

Applied create_key(const State& state, const CreateKey& command, Stamp stamp, Events& events);
Applied revoke_key(const State& state, const RevokeKey& command, Stamp stamp, Events& events);
Applied bind_role(const State& state, const BindRole& command, Stamp stamp, Events& events);
/// Forgets the key that ended first, once that is long ago; whether it did.
bool forget_key(const State& state, Time now, Events& events);

}  // namespace gpusched::rules

namespace gpusched {

void on(State& state, const KeyCreated& event);
void on(State& state, const KeyRevoked& event);
void on(State& state, const RoleBound& event);
void on(State& state, const KeyForgotten& event);

}  // namespace gpusched
