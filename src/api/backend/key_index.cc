#include "api/backend/key_index.h"

#include <algorithm>
#include <variant>

#include "access/access.h"
#include "api/backend/keys/own_keys.h"
#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/views/rights.h"
#include "base/check.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

ApiError was_revoked(KeyId id) {
  return {ErrorKind::kUnauthenticated, "the API key " + key_name(id) + " was revoked; send another one"};
}
ApiError has_expired(KeyId id) {
  return {ErrorKind::kUnauthenticated, "the API key " + key_name(id) + " has expired; send another one"};
}
ApiError lost_role(KeyId id) {
  return {ErrorKind::kPermissionDenied, "a role that this needs was taken from the API key " + key_name(id) +
                                            "; ask again to see what it may still do"};
}

bool has(const access::Caller& caller, const Binding& binding) {
  return std::ranges::find(caller.bindings, binding) != caller.bindings.end();
}
bool has_all_roles_of(const access::Caller& caller, const access::Caller& before) {
  return std::ranges::all_of(before.bindings, [&](const Binding& binding) { return has(caller, binding); });
}

/// Whether the roles that are left allow all that the lost one did: to what is the caller's own, and to what
/// is others'.
bool makes_up_for(const State& state, const access::Caller& left, const Binding& lost,
                  access::Action action) {
  access::Caller before = left;
  before.bindings = {lost};
  const Tenant* const tenant = state.find_tenant(lost.tenant);
  const TenantPosition position =
      tenant == nullptr ? TenantPosition{.path = {lost.tenant}, .depth = 1} : position_of(state, *tenant);
  for (const access::Owner& owner : {access::Owner{}, access::Owner{.kind = left.kind, .name = left.name}}) {
    const access::Resource resource = position.resource(owner);
    const auto allows = [&](const access::Caller& caller) {
      return decide_access(caller, action, resource) == access::Verdict::kAllowed;
    };
    if (allows(before) && !allows(left)) return false;
  }
  return true;
}

/// Actions beside kSeeJob whose results are shown to those who see jobs.
constexpr access::Action kShownToo[] = {access::Action::kDescribeJob, access::Action::kReadJobScript,
                                        access::Action::kSeeNode};

/// Whether what was begun with the roles of then may go on with those of now. Where it is about another
/// tenant than the lost role it ends without need.
bool may_go_on(const State& state, const access::Caller& then, const access::Caller& now,
               std::optional<access::Action> action) {
  return std::ranges::all_of(then.bindings, [&](const Binding& binding) {
    if (has(now, binding)) return true;
    if (!action || !makes_up_for(state, now, binding, *action)) return false;
    return *action != access::Action::kSeeJob || std::ranges::all_of(kShownToo, [&](access::Action shown) {
      return makes_up_for(state, now, binding, shown);
    });
  });
}

std::optional<PersonId> recorded_person(const Event& event) {
  const auto* const recorded = std::get_if<PersonRecorded>(&event);
  return recorded == nullptr ? std::nullopt : std::optional(recorded->person->id);
}

}  // namespace

std::string holder_name(const AccessKey& key) {
  return key.tenant.valid() ? tenant_name(key.tenant) + "/" + key.name : key.name;
}

void KeyIndex::fill(const State& state) {
  newest_ns_.store(state.last.at.ns, std::memory_order_relaxed);
  for (const auto& [id, key] : state.keys) set(state, key);
}

void KeyIndex::observe(const State& state, const Changes& changes) {
  newest_ns_.store(changes.last.at.ns, std::memory_order_relaxed);
  for (const Event& event : changes.events) {
    if (const auto* deleted = std::get_if<TenantDeleted>(&event)) {
      state.keys.for_each_of(deleted->tenant, [&](const AccessKey& key) { set(state, key); });
    } else if (const auto* created = std::get_if<KeyCreated>(&event)) {
      look_at(state, created->key->id);
    } else if (const auto* revoked = std::get_if<KeyRevoked>(&event)) {
      look_at(state, revoked->key);
    } else if (const auto* bound = std::get_if<RoleBound>(&event)) {
      look_at(state, bound->key);
    } else if (const std::optional<PersonId> person = recorded_person(event)) {
      // Seldom enough that all keys are looked through.
      for (const auto& [id, key] : state.keys)
        if (maker_of(key) == person) set(state, key);
    } else if (const auto* forgotten = std::get_if<KeyForgotten>(&event)) {
      look_at(state, forgotten->key);
    }
  }
}

Answer<CallerPtr> KeyIndex::holder_of(const sign::ApiKeyParts& key) const {
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
  const Time at = now();
  if (auto why = ended(*found, at)) return std::move(*why);
  // Most calls only look: many threads share the word of a key.
  const int64_t minute = at.ns / minutes(1).ns;
  if (found->used_min->load(std::memory_order_relaxed) != minute)
    found->used_min->store(minute, std::memory_order_relaxed);
  return found->holder;
}

Time KeyIndex::now() const { return std::max(now_(), Time{newest_ns_.load(std::memory_order_relaxed)}); }

std::optional<ApiError> KeyIndex::ended(const Entry& entry, Time now) {
  if (entry.revoked) return was_revoked(entry.id);
  if (entry.expires_at.valid() && entry.expires_at <= now) return has_expired(entry.id);
  return std::nullopt;
}

KeyIndex::EntryPtr KeyIndex::entry_of(KeyId id) const {
  std::string prefix;
  {
    const std::lock_guard lock(prefixes_mutex_);
    const auto found = prefixes_.find(id.value);
    if (found == prefixes_.end()) return nullptr;
    prefix = found->second;
  }
  const Shard& shard = shard_of(prefix);
  const std::lock_guard lock(shard.mutex);
  const auto at = shard.entries.find(prefix);
  return at == shard.entries.end() || at->second->id != id ? nullptr : at->second;
}

/// It is added first and looked at then: of whoever changes the key in between, one of both hears.
Answer<std::shared_ptr<void>> KeyIndex::while_valid(const CallerPtr& caller,
                                                    std::optional<access::Action> action,
                                                    std::function<void(const ApiError&)> end) const {
  const std::optional<KeyId> id = parse_key_id(caller->key_id);
  CHECK(id.has_value());
  const EntryPtr before = entry_of(*id);
  if (before == nullptr) return was_revoked(*id);
  std::shared_ptr<void> token = open_->add(
      *id, {.caller = caller, .action = action, .expires_at = before->expires_at, .end = std::move(end)});
  const EntryPtr after = entry_of(*id);
  if (after == nullptr) return was_revoked(*id);
  if (auto why = ended(*after, now())) return std::move(*why);
  // Without the state at hand any role that is gone counts: the client asks again.
  if (after->holder != caller && !has_all_roles_of(*after->holder, *caller)) return lost_role(*id);
  return token;
}

Time KeyIndex::last_use(KeyId id) const {
  const EntryPtr entry = entry_of(id);
  return entry == nullptr ? Time{} : Time{entry->used_min->load(std::memory_order_relaxed) * minutes(1).ns};
}

KeyUses KeyIndex::uses() const {
  KeyUses uses;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    for (const auto& [prefix, entry] : shard.entries) {
      const int64_t minute = entry->used_min->load(std::memory_order_relaxed);
      if (minute != 0) uses.push_back({.key = entry->id, .at = Time{minute * minutes(1).ns}});
    }
  }
  std::ranges::sort(uses, {}, &KeyUse::key);
  return uses;
}

void KeyIndex::restore(const KeyUses& uses) const {
  for (const KeyUse& use : uses) {
    const EntryPtr entry = entry_of(use.key);
    if (entry == nullptr) continue;
    const int64_t minute = use.at.ns / minutes(1).ns;
    int64_t known = entry->used_min->load(std::memory_order_relaxed);
    while (known < minute && !entry->used_min->compare_exchange_weak(known, minute)) {
    }
  }
}

void KeyIndex::end_expired() const { open_->expire(now(), has_expired); }

bool KeyIndex::is_there(std::string_view prefix) const {
  const Shard& shard = shard_of(prefix);
  const std::lock_guard lock(shard.mutex);
  return shard.entries.contains(prefix);
}

void KeyIndex::set(const State& state, const AccessKey& key) {
  KeyInEffect now = in_effect(state, key);
  auto holder =
      std::make_shared<const access::Caller>(access::Caller{.kind = key.kind,
                                                            .name = std::move(now.holder),
                                                            .key_id = key_name(key.id),
                                                            .bindings = std::move(now.bindings),
                                                            .unix_users = std::move(now.unix_users)});
  const EntryPtr before = entry_of(key.id);
  auto used_min = before == nullptr ? std::make_shared<std::atomic<int64_t>>(0) : before->used_min;
  auto entry = std::make_shared<const Entry>(Entry{.id = key.id,
                                                   .hash = std::string(key.hash.view()),
                                                   .expires_at = key.expires_at,
                                                   .revoked = now.revoked,
                                                   .holder = holder,
                                                   .used_min = std::move(used_min)});
  {
    const std::lock_guard lock(prefixes_mutex_);
    prefixes_[key.id.value] = key.prefix;
  }
  {
    Shard& shard = shard_of(key.prefix);
    const std::lock_guard lock(shard.mutex);
    shard.entries.insert_or_assign(key.prefix, entry);
  }
  // After the exchange: who was let in just before it is there already, or looks for itself.
  open_->look_at(key.id, [&](const OpenUnderKeys::Open& open) -> std::optional<ApiError> {
    if (entry->revoked) return was_revoked(entry->id);
    if (!may_go_on(state, *open.caller, *holder, open.action)) return lost_role(entry->id);
    return std::nullopt;
  });
}

/// As the state has it now: gone, too.
void KeyIndex::look_at(const State& state, KeyId id) {
  if (const AccessKey* const key = state.keys.find(id)) return set(state, *key);
  std::string prefix;
  {
    const std::lock_guard lock(prefixes_mutex_);
    const auto found = prefixes_.find(id.value);
    if (found == prefixes_.end()) return;
    prefix = std::move(found->second);
    prefixes_.erase(found);
  }
  Shard& shard = shard_of(prefix);
  const std::lock_guard lock(shard.mutex);
  shard.entries.erase(prefix);
}

}  // namespace gpusched::api
