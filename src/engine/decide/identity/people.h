#pragma once

#include "engine/engine.h"

/// The rules about people, for `decide`, and what their event changes, for `evolve`.
namespace gpusched::rules {

Applied record_person(const State& state, const RecordPerson& command, Stamp stamp, Events& events);
/// Whether a key of that name and home may be made: of no person, or of an active one whose home it is.
bool may_have_key(const State& state, const std::string& name, TenantId home);
/// The people of a tenant that ends are active no more. Their keys end with the tenant.
void deactivate_all_of(const State& state, TenantId tenant, Time at, const std::string& by, Events& events);

}  // namespace gpusched::rules

namespace gpusched {

void on(State& state, const PersonRecorded& event);

}  // namespace gpusched
