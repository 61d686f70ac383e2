// The auditor's reference of keys: what is revoked stays so, over every crash and at every copy of the state.
#include <algorithm>

#include "base/limits.h"
#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

std::string name_of(PersonId person) { return "user " + std::to_string(person.value); }
std::string name_of(KeyId key) { return "key " + std::to_string(key.value); }

template <typename Record>
Digest digest_of(const Record& record) {
  Digest digest;
  mix_fields(digest, record);
  return digest;
}

}  // namespace

void Auditor::on(const KeyCreated& event) {
  const AccessKey& key = *event.key;
  if (key.revoked_at.valid()) fail(name_of(key.id) + " is made as a revoked one");
  for (const auto& [id, other] : keys_) {
    if (other.prefix == key.prefix) fail(name_of(key.id) + " has the prefix of " + name_of(id));
  }
  if (!keys_.emplace(key.id, key).second) fail(name_of(key.id) + " is there twice");
}

void Auditor::on(const KeyRevoked& event) {
  AccessKey& key = keys_.at(event.key);
  if (!revoked_keys_.insert(event.key).second) fail(name_of(event.key) + " is revoked twice");
  key.revoked_at = event.at;
  key.revoked_by = event.by;
}

void Auditor::on(const TenantDeleted& event) {
  for (auto& [id, key] : keys_) {
    if (key.tenant == event.tenant && revoked_keys_.insert(id).second) {
      key.revoked_at = event.at;
      key.revoked_by = event.by;
    }
  }
}

void Auditor::on(const RoleBound& event) {
  AccessKey& key = keys_.at(event.key);
  if (revoked_keys_.contains(event.key)) fail(name_of(event.key) + " is revoked, and its roles change");
  if (event.taken) {
    std::erase(key.bindings, event.binding());
    return;
  }
  key.bindings.push_back(event.binding());
  if (key.tenant.valid() && !is_in(event.tenant, key.tenant))
    fail(name_of(event.key) + " has a role outside of its tenant");
}

void Auditor::on(const PersonRecorded& event) {
  const Person& person = *event.person;
  for (const auto& [id, other] : people_) {
    if (id != person.id && other.email == person.email)
      fail(name_of(id) + " has the address of another user");
  }
  people_.insert_or_assign(person.id, person);
}

void Auditor::on(const KeyForgotten& event) {
  const AccessKey& key = keys_.at(event.key);
  if (!key.ends_at().valid() || replica_.last.at < key.ends_at() + limits::kKeysKept)
    fail(name_of(event.key) + " is forgotten too early");
  keys_.erase(event.key);
}

void Auditor::on_revoke_accepted(KeyId key) {
  if (!revoked_keys_.contains(key)) fail("a client was told that " + name_of(key) + " is revoked");
}

void Auditor::on_key_told(KeyId key, const AccessKey* told) {
  if (told != nullptr && revoked_keys_.contains(key) && told->is_alive(replica_.last.at))
    fail("a client reads " + name_of(key) + ", which is revoked, as alive");
  if (told == nullptr && keys_.contains(key)) fail("a client does not find " + name_of(key));
}

void Auditor::check_keys(const char* whose, const State& state) {
  if (state.keys.size() != keys_.size()) fail(std::string(whose) + " has another number of keys");
  for (const auto& [id, key] : state.keys) {
    const auto reference = keys_.find(id);
    if (revoked_keys_.contains(id) && key.is_alive(replica_.last.at))
      fail(std::string(whose) + " has " + name_of(id) + " as alive, which was revoked");
    if (reference == keys_.end() || digest_of(reference->second) != digest_of(key))
      fail(std::string(whose) + " has another " + name_of(id) + " than the books");
    // A person's key is alive as long as that person may have it.
    const auto person = person_of_key_name(key.name);
    if (!person || !key.is_alive(replica_.last.at)) continue;
    const auto holder = people_.find(*person);
    if (holder == people_.end() || !holder->second.active || holder->second.tenant != key.tenant)
      fail(std::string(whose) + " has " + name_of(id) + " as alive without right of " + name_of(*person));
  }
}

void Auditor::check_people(const char* whose, const State& state) {
  if (state.people.size() != people_.size()) fail(std::string(whose) + " has another number of users");
  for (const auto& [id, person] : state.people) {
    const auto reference = people_.find(id);
    if (reference == people_.end() || digest_of(reference->second) != digest_of(person))
      fail(std::string(whose) + " has another " + name_of(id) + " than the books");
  }
}

}  // namespace gpusched::sim
