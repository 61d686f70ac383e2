#include "model/identity/person.h"

#include <charconv>
#include <utility>

#include "base/limits.h"

namespace gpusched {
namespace {

constexpr std::string_view kKeyNameStart = "user:";

std::string folded(std::string_view email) {
  std::string out(email);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

bool is_possible(const Person& person) {
  return !person.email.empty() && person.email.size() <= limits::kNameBytesMax &&
         person.password.view().size() <= limits::kPasswordHashBytesMax &&
         person.changed_by.size() <= limits::kNameBytesMax &&
         is_meaningful({.tenant = person.tenant, .role = person.role});
}

std::string key_name_of(PersonId person) { return std::string(kKeyNameStart) + std::to_string(person.value); }

bool is_persons_key_name(std::string_view name) { return name.starts_with(kKeyNameStart); }

std::optional<PersonId> person_of_key_name(std::string_view name) {
  if (!is_persons_key_name(name)) return std::nullopt;
  const std::string_view digits = name.substr(kKeyNameStart.size());
  PersonId id;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), id.value);
  if (read.ec != std::errc() || key_name_of(id) != name) return std::nullopt;
  return id;
}

const Person* PersonTable::find(PersonId id) const {
  const auto found = people_.find(id);
  return found == people_.end() ? nullptr : &found->second;
}

const Person* PersonTable::find_email(std::string_view email) const {
  const auto found = by_email_.find(folded(email));
  return found == by_email_.end() ? nullptr : find(found->second);
}

bool PersonTable::put(Person person) {
  const auto [by_email, is_new] = by_email_.emplace(folded(person.email), person.id);
  if (!is_new && by_email->second != person.id) return false;
  const auto before = people_.find(person.id);
  if (before != people_.end() && folded(before->second.email) != by_email->first)
    by_email_.erase(folded(before->second.email));
  const PersonId id = person.id;
  people_.insert_or_assign(id, std::move(person));
  return true;
}

}  // namespace gpusched
