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

/// For tests only: something about keys. They have few names, so that some are taken; most that are asked
/// about are there.
inline Command random_key_command(Prng& prng, const State& state, TenantId some_tenant) {
  const uint64_t number = state.last.sequence;
  KeyId key{number};
  if (state.keys.size() > 0)
    key = std::next(state.keys.begin(), static_cast<std::ptrdiff_t>(prng.below(state.keys.size())))->first;
  const TenantId tenant = prng.chance(800) ? some_tenant : TenantId{};
  const uint64_t draw = prng.below(10);
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
  if (prng.chance(300)) create.unix_users = {"ana", "*"};
  if (tenant.valid() && prng.chance(700)) create.bindings = {{.tenant = tenant, .role = Role::kUser}};
  if (prng.chance(300))
    create.expires_at = std::min(state.last.at + minutes(prng.between(0, 3'000)), limits::kTimeMax);
  return create;
}

}  // namespace gpusched::testing
