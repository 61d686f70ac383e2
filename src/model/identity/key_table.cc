#include "model/identity/key_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {

bool is_key_prefix(std::string_view prefix) {
  const bool fits = prefix.size() >= limits::kKeyPrefixMin && prefix.size() <= limits::kKeyPrefixMax;
  return fits &&
         std::ranges::all_of(prefix, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

bool is_possible(const AccessKey& key) {
  const bool somebodys = key.kind == CallerKind::kPerson || key.kind == CallerKind::kService;
  const bool named = !key.name.empty() && key.name.size() <= limits::kNameBytesMax;
  if (!somebodys || !named || !is_key_prefix(key.prefix)) return false;
  if (key.hash.view().size() != limits::kKeyHashBytes) return false;
  if (key.bindings.size() > limits::kKeyBindingsMax || key.unix_users.size() > limits::kKeyUnixUsersMax)
    return false;
  for (std::size_t i = 0; i < key.bindings.size(); ++i) {
    if (!is_meaningful(key.bindings[i])) return false;
    if (std::count(key.bindings.begin(), key.bindings.end(), key.bindings[i]) > 1) return false;
  }
  return std::ranges::all_of(key.unix_users, [](const std::string& user) {
    return !user.empty() && user.size() <= limits::kNameBytesMax;
  });
}

const AccessKey* KeyTable::find(KeyId id) const {
  const auto found = keys_.find(id);
  return found == keys_.end() ? nullptr : &found->second;
}

const AccessKey* KeyTable::find_prefix(std::string_view prefix) const {
  const auto found = by_prefix_.find(prefix);
  return found == by_prefix_.end() ? nullptr : find(found->second);
}

const AccessKey* KeyTable::find_living(TenantId home, std::string_view name, Time at) const {
  for (auto each = by_home_.lower_bound({home, KeyId{}}); each != by_home_.end() && each->first == home;
       ++each) {
    const AccessKey* key = find(each->second);
    if (key->name == name && key->is_alive(at)) return key;
  }
  return nullptr;
}

std::size_t KeyTable::count_of(TenantId home) const {
  const auto found = counts_.find(home);
  return found == counts_.end() ? 0 : found->second;
}

AccessKey& KeyTable::at(KeyId id) {
  const auto found = keys_.find(id);
  CHECK(found != keys_.end());
  return found->second;
}

bool KeyTable::add(AccessKey key) {
  if (keys_.contains(key.id) || by_prefix_.contains(key.prefix)) return false;
  by_prefix_.emplace(key.prefix, key.id);
  by_home_.emplace(key.tenant, key.id);
  if (key.ends_at().valid()) by_end_.emplace(key.ends_at(), key.id);
  ++counts_[key.tenant];
  const KeyId id = key.id;
  keys_.emplace(id, std::move(key));
  return true;
}

void KeyTable::revoke(KeyId id, Time at_time, const std::string& by) {
  AccessKey& key = at(id);
  CHECK(!key.revoked_at.valid());  // It is revoked once, and never again alive.
  by_end_.erase({key.ends_at(), id});
  key.revoked_at = at_time;
  key.revoked_by = by;
  by_end_.emplace(key.ends_at(), id);
}

void KeyTable::revoke_all_of(TenantId home, Time at_time, const std::string& by) {
  for (auto each = by_home_.lower_bound({home, KeyId{}}); each != by_home_.end() && each->first == home;
       ++each) {
    if (!find(each->second)->revoked_at.valid()) revoke(each->second, at_time, by);
  }
}

void KeyTable::bind(KeyId id, const Binding& binding, bool taken) {
  AccessKey& key = at(id);
  const auto found = std::ranges::find(key.bindings, binding);
  CHECK((found != key.bindings.end()) == taken);
  if (taken) {
    key.bindings.erase(found);
  } else {
    key.bindings.push_back(binding);
  }
}

void KeyTable::remove(KeyId id) {
  const AccessKey& key = at(id);
  by_prefix_.erase(key.prefix);
  by_home_.erase({key.tenant, id});
  by_end_.erase({key.ends_at(), id});
  const auto count = counts_.find(key.tenant);
  if (--count->second == 0) counts_.erase(count);
  keys_.erase(id);
}

}  // namespace gpusched
