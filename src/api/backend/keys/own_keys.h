#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/access.h"
#include "api/contract/names.h"
#include "base/time.h"
#include "model/identity/access_key.h"
#include "model/identity/person.h"
#include "model/state.h"

/// Keys that recorded people make for themselves. Such a key is its person's: its holder is the same caller
/// as that of the key that was given to the person, with the role that the person has now, and it is as good
/// as revoked once the person is inactive or elsewhere. Nothing of that is journaled; it follows from the
/// state. Names of such keys begin with "own:", as no door gives another key a name with a colon.
namespace gpusched::api {

/// Most living keys that one person may have besides the one that was given to it.
inline constexpr std::size_t kOwnKeysMax = 20;
inline constexpr std::string_view kOwnKeyStart = "own:";

/// Name for another key of that person; `drawn` tells it from the others.
inline std::string own_key_name(PersonId person, std::string_view drawn) {
  return std::string(kOwnKeyStart) + key_name_of(person) + ":" + std::string(drawn);
}

/// The person who made the key for itself; nothing: the key is no such one.
inline std::optional<PersonId> maker_of(const AccessKey& key) {
  std::string_view name = key.name;
  if (!name.starts_with(kOwnKeyStart)) return std::nullopt;
  name.remove_prefix(kOwnKeyStart.size());
  return person_of_key_name(name.substr(0, name.rfind(':')));
}

/// The person whose key it is, given or made; nothing: it is nobody's of those who are recorded.
inline std::optional<PersonId> person_of(const AccessKey& key) {
  const std::optional<PersonId> maker = maker_of(key);
  return maker ? maker : person_of_key_name(key.name);
}

/// A key as it holds now.
struct KeyInEffect {
  std::string holder;  ///< As `holder_name`.
  std::vector<Binding> bindings;
  std::vector<std::string> unix_users;
  bool revoked = false;  ///< It, or what its person may have.
};

inline KeyInEffect in_effect(const State& state, const AccessKey& key) {
  const std::optional<PersonId> maker = maker_of(key);
  const std::string name = maker ? key_name_of(*maker) : key.name;
  KeyInEffect now{.holder = key.tenant.valid() ? tenant_name(key.tenant) + "/" + name : name,
                  .bindings = key.bindings,
                  .unix_users = key.unix_users,
                  .revoked = key.revoked_at.valid()};
  const bool is_own = std::string_view(key.name).starts_with(kOwnKeyStart);
  if (!is_own) return now;
  const Person* const person = maker ? state.people.find(*maker) : nullptr;
  const bool holds = person != nullptr && person->active && person->tenant == key.tenant;
  now.bindings.clear();
  now.unix_users.clear();
  if (holds) now.bindings.push_back({.tenant = person->tenant, .role = person->role});
  now.revoked = now.revoked || !holds;
  return now;
}

}  // namespace gpusched::api
