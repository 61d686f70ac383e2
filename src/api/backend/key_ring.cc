#include "api/backend/key_ring.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include "api/contract/names.h"
#include "base/limits.h"

namespace gpusched::api {

std::string holder_name(const AccessKey& key) {
  return key.tenant.valid() ? tenant_name(key.tenant) + "/" + key.name : key.name;
}

Time wall_now() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::system_clock::now().time_since_epoch())
              .count()};
}

void KeyRing::fill(const State& state) {
  newest_ns_.store(state.last.at.ns, std::memory_order_relaxed);
  for (const auto& [id, key] : state.keys) set(key);
}

void KeyRing::observe(const State& state, const Changes& changes) {
  newest_ns_.store(changes.last.at.ns, std::memory_order_relaxed);
  for (const Event& event : changes.events) {
    if (const auto* deleted = std::get_if<TenantDeleted>(&event)) {
      state.keys.for_each_of(deleted->tenant, [&](const AccessKey& key) { set(key); });
    } else if (const auto* created = std::get_if<KeyCreated>(&event)) {
      look_at(state, created->key->id);
    } else if (const auto* revoked = std::get_if<KeyRevoked>(&event)) {
      look_at(state, revoked->key);
    } else if (const auto* bound = std::get_if<RoleBound>(&event)) {
      look_at(state, bound->key);
    } else if (const auto* forgotten = std::get_if<KeyForgotten>(&event)) {
      look_at(state, forgotten->key);
    }
  }
}

Answer<CallerPtr> KeyRing::holder_of(const sign::ApiKeyParts& key) const {
  EntryPtr found;
  {
    const Shard& shard = shard_of(key.prefix);
    const std::lock_guard lock(shard.mutex);
    const auto at = shard.entries.find(key.prefix);
    if (at != shard.entries.end()) found = at->second;
  }
  // A key that is not there takes as long as one that is.
  static const std::string kNobodys(limits::kKeyHashBytes, '\0');
  if (!sign::is_api_secret(key.secret, found == nullptr ? kNobodys : found->hash) || found == nullptr)
    return unknown_credential();
  const std::string name = key_name(found->id);
  if (found->revoked)
    return ApiError{ErrorKind::kUnauthenticated, "the API key " + name + " was revoked; send another one"};
  const Time now = std::max(now_(), Time{newest_ns_.load(std::memory_order_relaxed)});
  if (found->expires_at.valid() && found->expires_at <= now)
    return ApiError{ErrorKind::kUnauthenticated, "the API key " + name + " has expired; send another one"};
  return found->holder;
}

void KeyRing::set(const AccessKey& key) {
  auto holder = std::make_shared<const access::Caller>(access::Caller{.kind = key.kind,
                                                                      .name = holder_name(key),
                                                                      .key_id = key_name(key.id),
                                                                      .bindings = key.bindings,
                                                                      .unix_users = key.unix_users});
  auto entry = std::make_shared<const Entry>(Entry{.id = key.id,
                                                   .hash = std::string(key.hash.view()),
                                                   .expires_at = key.expires_at,
                                                   .revoked = key.revoked_at.valid(),
                                                   .holder = std::move(holder)});
  prefixes_[key.id.value] = key.prefix;
  Shard& shard = shard_of(key.prefix);
  const std::lock_guard lock(shard.mutex);
  shard.entries.insert_or_assign(key.prefix, std::move(entry));
}

/// As the state has it now: gone, too.
void KeyRing::look_at(const State& state, KeyId id) {
  if (const AccessKey* const key = state.keys.find(id)) return set(*key);
  const auto prefix = prefixes_.find(id.value);
  if (prefix == prefixes_.end()) return;
  Shard& shard = shard_of(prefix->second);
  {
    const std::lock_guard lock(shard.mutex);
    shard.entries.erase(prefix->second);
  }
  prefixes_.erase(prefix);
}

}  // namespace gpusched::api
