#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "engine/decide/identity/people.h"

// People: recorded, changed, and what becomes of their keys.
namespace gpusched::rules {
namespace {

bool knows_people(const State& state) { return state.config.feature_level >= 11; }

bool is_given(const RecordPerson& command, PersonField field) { return (command.given & field) != 0; }

Person changed(Person person, const RecordPerson& command, Stamp stamp) {
  if (is_given(command, kPersonTenant)) person.tenant = command.tenant;
  if (is_given(command, kPersonEmail)) person.email = command.email;
  if (is_given(command, kPersonRole)) person.role = command.role;
  if (is_given(command, kPersonPassword)) person.password = command.password;
  if (is_given(command, kPersonActive)) person.active = command.active;
  person.changed_by = command.by;
  person.updated_at = stamp.at;
  return person;
}

std::optional<RejectionCode> problem_of(const State& state, const Person& person, const Person* before) {
  const bool moves = before == nullptr || before->tenant != person.tenant;
  const Tenant* const home = state.find_tenant(person.tenant);
  const bool homeless = person.tenant.valid() && (home == nullptr || home->deleted);
  if (homeless && (moves || person.active)) return RejectionCode::kTenantNotFound;
  // A role of the cluster has no tenant.
  if (!is_meaningful({.tenant = person.tenant, .role = person.role})) return RejectionCode::kBindingInvalid;
  const Person* const namesake = state.people.find_email(person.email);
  if (namesake != nullptr && namesake->id != person.id) return RejectionCode::kPersonExists;
  if (before == nullptr && state.people.size() >= limits::kPeopleMax) return RejectionCode::kPersonLimit;
  return std::nullopt;
}

/// The living key of the person ends when the person has no more right to it, and follows its role.
void settle_key(const State& state, const Person& before, const Person& after, Stamp stamp, Events& events) {
  const AccessKey* const key = state.keys.find_living(before.tenant, key_name_of(before.id), stamp.at);
  if (key == nullptr) return;
  if (!after.active || after.tenant != before.tenant) {
    events.push_back(KeyRevoked{.key = key->id, .at = stamp.at, .by = after.changed_by});
    return;
  }
  if (after.role == before.role) return;
  const auto bind = [&](Role role, bool taken) {
    const Binding binding{.tenant = after.tenant, .role = role};
    const bool has = std::ranges::find(key->bindings, binding) != key->bindings.end();
    if (has != taken) return;
    events.push_back(RoleBound{
        .key = key->id, .tenant = after.tenant, .role = role, .taken = taken, .by = after.changed_by});
  };
  bind(before.role, true);
  bind(after.role, false);
}

}  // namespace

Applied record_person(const State& state, const RecordPerson& command, Stamp stamp, Events& events) {
  if (!knows_people(state)) return {.rejection = Rejection{.code = RejectionCode::kStale}};
  const Person* const before = state.people.find(command.person);
  if (command.person.valid() && before == nullptr)
    return {.rejection = Rejection{.code = RejectionCode::kPersonNotFound}};
  const Person made{.id = PersonId{stamp.sequence}, .created_at = stamp.at};
  const Person after = changed(before == nullptr ? made : *before, command, stamp);
  if (const auto problem = problem_of(state, after, before))
    return {.rejection = Rejection{.code = *problem}};
  events.push_back(PersonRecorded{.person = after});
  if (before != nullptr) settle_key(state, *before, after, stamp, events);
  return {.rejection = {}, .first_id = after.id.value, .id_count = 1};
}

bool may_have_key(const State& state, const std::string& name, TenantId home) {
  if (!knows_people(state) || !is_persons_key_name(name)) return true;
  const std::optional<PersonId> id = person_of_key_name(name);
  const Person* const person = id ? state.people.find(*id) : nullptr;
  return person != nullptr && person->active && person->tenant == home;
}

void deactivate_all_of(const State& state, TenantId tenant, Time at, const std::string& by, Events& events) {
  for (const auto& [id, person] : state.people) {
    if (person.tenant != tenant || !person.active) continue;
    Person after = person;
    after.active = false;
    after.changed_by = by;
    after.updated_at = at;
    events.push_back(PersonRecorded{.person = std::move(after)});
  }
}

}  // namespace gpusched::rules

namespace gpusched {

void on(State& state, const PersonRecorded& event) {
  const bool put = state.people.put(*event.person);
  CHECK(put);  // `decide` looked for the address.
}

}  // namespace gpusched
