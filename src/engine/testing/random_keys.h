#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/messages/commands.h"
#include "model/state.h"

namespace gpusched::testing {

/// For tests only: somebody is recorded, or changed. They have few addresses, so that some are taken.
inline RecordPerson random_person_command(Prng& prng, const State& state, TenantId tenant) {
  RecordPerson command{.person = {},
                       .given = kPersonTenant | kPersonEmail | kPersonRole | kPersonActive,
                       .tenant = tenant,
                       .email = (prng.chance(500) ? "ana" : "Bob") + std::to_string(prng.below(4)) + "@x.org",
                       .role = static_cast<Role>(1 + prng.below(3)),
                       .password = {},
                       .active = prng.chance(700),
                       .by = "op"};
  if (state.people.size() > 0 && prng.chance(600)) {
    const auto nth = static_cast<std::ptrdiff_t>(prng.below(state.people.size()));
    command.person = std::next(state.people.begin(), nth)->first;
    command.given = static_cast<uint32_t>(prng.below(kPersonFields + 1));
  }
  return command;
}

/// For tests only: something about keys. They have few names, so that some are taken; most that are asked
/// about are there.
inline Command random_key_command(Prng& prng, const State& state, TenantId some_tenant) {
  const uint64_t number = state.last.sequence;
  KeyId key{number};
  if (state.keys.size() > 0)
    key = std::next(state.keys.begin(), static_cast<std::ptrdiff_t>(prng.below(state.keys.size())))->first;
  const TenantId tenant = prng.chance(800) ? some_tenant : TenantId{};
  const uint64_t draw = prng.below(13);
  if (draw >= 10) return random_person_command(prng, state, tenant);
  if (draw < 2) return RevokeKey{.key = key, .by = "op"};
  if (draw < 6) {
    return BindRole{.key = key,
                    .tenant = tenant,
                    .role = static_cast<Role>(1 + number % kRoleCount),
                    .taken = prng.chance(300),
                    .by = "op"};
  }
  CreateKey create{.tenant = tenant,
                   .name = "key-" + std::to_string(prng.below(6)),
                   .kind = number % 2 == 0 ? CallerKind::kPerson : CallerKind::kService,
                   .prefix = "prefix" + std::to_string(prng.chance(50) ? 10 : 10 + number),
                   .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
                   .bindings = {},
                   .unix_users = {},
                   .expires_at = {},
                   .by = "op"};
  Role role = Role::kUser;
  if (state.people.size() > 0 && prng.chance(300)) {
    const auto nth = static_cast<std::ptrdiff_t>(prng.below(state.people.size()));
    const Person& person = std::next(state.people.begin(), nth)->second;
    create.name = key_name_of(person.id);
    if (prng.chance(900)) create.tenant = person.tenant;
    role = person.role;
  }
  if (prng.chance(300)) create.unix_users = {"ana", "*"};
  if (create.tenant.valid() && prng.chance(700)) create.bindings = {{.tenant = create.tenant, .role = role}};
  if (prng.chance(300))
    create.expires_at = std::min(state.last.at + minutes(prng.between(0, 3'000)), limits::kTimeMax);
  return create;
}

/// For tests only: something about who may be a node. They have few names; most tickets that are shown are
/// there, and some are shown again with the key that used them.
inline Command random_node_identity_command(Prng& prng, const State& state) {
  const NodeIdentityTable& known = state.node_identities;
  const auto any_of = [&](const auto& all) {
    return std::next(all.begin(), static_cast<std::ptrdiff_t>(prng.below(all.size())));
  };
  std::string node = "node-" + std::to_string(prng.below(4));
  const uint64_t draw = prng.below(10);
  if (draw < 1) {
    if (!known.identities().empty() && prng.chance(800)) node = any_of(known.identities())->first;
    return RevokeNode{.node = node, .by = "op"};
  }
  if (draw < 4 || known.tickets().empty()) {
    return CreateNodeTicket{
        .node = node,
        .prefix = "prefix" + std::to_string(10 + state.last.sequence),
        .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
        .expires_at = std::min(state.last.at + minutes(prng.between(1, 600)), limits::kTimeMax),
        .by = "op"};
  }
  AdmitNode admit{
      .ticket = {},
      .identity = {},
      .node = node,
      .key = Blob(std::string(limits::kPublicKeyHashBytes, static_cast<char>('a' + prng.below(3)))),
      .expires_at = std::min(state.last.at + hours(24), limits::kTimeMax)};
  if (draw < 8 || known.identities().empty()) {
    const NodeTicket& ticket = any_of(known.tickets())->second;
    admit.ticket = ticket.id;
    if (prng.chance(900)) admit.node = ticket.node;
    if (ticket.is_used() && prng.chance(500)) admit.key = ticket.used_by;
    return admit;
  }
  const NodeIdentity& identity = any_of(known.identities())->second;
  admit.identity = identity.id;
  if (prng.chance(900)) admit.node = identity.node;
  return admit;
}

}  // namespace gpusched::testing
