#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/limits.h"
#include "engine/decide/identity/keys.h"
#include "engine/decide/identity/people.h"

// Keys: made, revoked, given roles, and forgotten.
namespace gpusched::rules {
namespace {

Applied reject(RejectionCode code) { return {.rejection = Rejection{.code = code}}; }
Applied accept() { return {}; }

bool knows_keys(const State& state) { return state.config.feature_level >= 9; }

/// Whether the binding leads out of the home, or nowhere. A home of the cluster is above all tenants.
bool leads_out(const State& state, TenantId home, const Binding& binding) {
  if (!is_meaningful(binding)) return true;
  if (!binding.tenant.valid()) return home.valid();
  const Tenant* const bound = state.find_tenant(binding.tenant);
  if (bound == nullptr || bound->deleted) return true;
  if (!home.valid()) return false;
  for (const Tenant* at = bound; at != nullptr; at = state.find_tenant(at->parent)) {
    if (at->id == home) return false;
  }
  return true;
}

/// Whether a person's key would have a role that is not the person's: another one since it was read for the
/// command.
bool has_former_role(const State& state, const CreateKey& command) {
  const bool knows_people = state.config.feature_level >= 11;
  const std::optional<PersonId> id = knows_people ? person_of_key_name(command.name) : std::nullopt;
  const Person* const person = id ? state.people.find(*id) : nullptr;
  if (person == nullptr) return false;
  const Binding own{.tenant = person->tenant, .role = person->role};
  return std::ranges::any_of(command.bindings, [&own](const Binding& binding) { return binding != own; });
}

AccessKey key_of(const CreateKey& command, Stamp stamp) {
  return {.id = KeyId{stamp.sequence},
          .tenant = command.tenant,
          .name = command.name,
          .kind = command.kind,
          .prefix = command.prefix,
          .hash = command.hash,
          .bindings = command.bindings,
          .unix_users = command.unix_users,
          .created_by = command.by,
          .created_at = stamp.at,
          .expires_at = command.expires_at,
          .revoked_at = {},
          .revoked_by = {}};
}

}  // namespace

Applied create_key(const State& state, const CreateKey& command, Stamp stamp, Events& events) {
  if (!knows_keys(state)) return reject(RejectionCode::kStale);
  const Tenant* const home = state.find_tenant(command.tenant);
  if (command.tenant.valid() && (home == nullptr || home->deleted))
    return reject(RejectionCode::kTenantNotFound);
  if (!may_have_key(state, command.name, command.tenant)) return reject(RejectionCode::kPersonNotFound);
  if (has_former_role(state, command)) return reject(RejectionCode::kStale);
  if (state.keys.find_prefix(command.prefix) != nullptr ||
      state.keys.find_living(command.tenant, command.name, stamp.at) != nullptr)
    return reject(RejectionCode::kKeyExists);
  if (command.expires_at.valid() && command.expires_at <= stamp.at) return reject(RejectionCode::kKeyExpiry);
  if (state.keys.size() >= limits::kKeysMax ||
      state.keys.count_of(command.tenant) >= limits::kKeysOfOneHomeMax)
    return reject(RejectionCode::kKeyLimit);
  const bool out = std::ranges::any_of(
      command.bindings, [&](const Binding& binding) { return leads_out(state, command.tenant, binding); });
  if (out) return reject(RejectionCode::kBindingInvalid);
  events.push_back(KeyCreated{.key = key_of(command, stamp)});
  return {.rejection = {}, .first_id = stamp.sequence, .id_count = 1};
}

Applied revoke_key(const State& state, const RevokeKey& command, Stamp stamp, Events& events) {
  const AccessKey* const key = state.keys.find(command.key);
  if (key == nullptr) return reject(RejectionCode::kKeyNotFound);
  if (key->revoked_at.valid()) return reject(RejectionCode::kKeyRevoked);
  events.push_back(KeyRevoked{.key = key->id, .at = stamp.at, .by = command.by});
  return accept();
}

Applied bind_role(const State& state, const BindRole& command, Stamp stamp, Events& events) {
  const AccessKey* const key = state.keys.find(command.key);
  if (key == nullptr) return reject(RejectionCode::kKeyNotFound);
  if (!key->is_alive(stamp.at)) return reject(RejectionCode::kKeyRevoked);
  const Binding binding = command.binding();
  const bool bound = std::ranges::find(key->bindings, binding) != key->bindings.end();
  if (bound == !command.taken) return accept();  // So it is already.
  if (!command.taken && leads_out(state, key->tenant, binding)) return reject(RejectionCode::kBindingInvalid);
  if (!command.taken && key->bindings.size() >= limits::kKeyBindingsMax)
    return reject(RejectionCode::kKeyLimit);
  events.push_back(RoleBound{.key = key->id,
                             .tenant = command.tenant,
                             .role = command.role,
                             .taken = command.taken,
                             .by = command.by});
  return accept();
}

bool forget_key(const State& state, Time now, Events& events) {
  if (state.next_key_due() > now) return false;
  events.push_back(KeyForgotten{.key = state.keys.first_to_end()});
  return true;
}

}  // namespace gpusched::rules

namespace gpusched {

void on(State& state, const KeyCreated& event) {
  const bool added = state.keys.add(*event.key);
  CHECK(added);  // A sequence number is used once, and `decide` looked for the prefix.
}
void on(State& state, const KeyRevoked& event) { state.keys.revoke(event.key, event.at, event.by); }
void on(State& state, const RoleBound& event) { state.keys.bind(event.key, event.binding(), event.taken); }
void on(State& state, const KeyForgotten& event) { state.keys.remove(event.key); }

}  // namespace gpusched
