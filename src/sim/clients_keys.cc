// Clients: keys that people give each other, and take.
#include <string>
#include <utility>

#include "base/limits.h"
#include "sim/clients.h"

namespace gpusched::sim {

void Clients::key_something() {
  Prng& prng = context_.prng;
  const uint64_t draw = prng.below(10);
  if (keys_.empty() || draw < 3) return create_key();
  const KeyId key = keys_[prng.below(keys_.size())];
  if (draw < 5) {
    if (!host_.up()) return;
    host_.read(0, [this, key](const Observer::View& view) {
      context_.auditor.on_key_told(key, view.state.keys.find(key));
    });
    return;
  }
  Command command = RevokeKey{.key = key, .by = "client"};
  if (draw < 8) {
    command = BindRole{.key = key,
                       .tenant = some_tenant(),
                       .role = static_cast<Role>(prng.between(1, 3)),
                       .taken = prng.chance(300),
                       .by = "client"};
  }
  command = maybe_wild(std::move(command));
  const auto* const revoke = std::get_if<RevokeKey>(&command);
  const KeyId revoked = revoke == nullptr ? KeyId{} : revoke->key;
  call(
      command, [] {},
      [this, revoked](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        context_.auditor.on_answer(result->sequence);
        if (revoked.valid()) context_.auditor.on_revoke_accepted(revoked);
      },
      [](bool) {});
}

void Clients::create_key() {
  Prng& prng = context_.prng;
  const uint64_t number = next_key_++;
  CreateKey command{.tenant = some_tenant(),
                    .name = "key-" + std::to_string(number % 5),
                    .kind = number % 2 == 0 ? CallerKind::kPerson : CallerKind::kService,
                    .prefix = "prefix" + std::to_string(100 + number),
                    .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
                    .bindings = {},
                    .unix_users = {},
                    .expires_at = {},
                    .by = "client"};
  command.bindings.push_back({.tenant = command.tenant, .role = Role::kUser});
  if (prng.chance(300))
    command.expires_at = context_.auditor.replica().last.at + seconds(prng.between(1, 600));
  call(
      maybe_wild(command), [] {},
      [this](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        context_.auditor.on_answer(result->sequence);
        keys_.push_back(KeyId{result->applied.first_id});
      },
      [](bool) {});
}

}  // namespace gpusched::sim
