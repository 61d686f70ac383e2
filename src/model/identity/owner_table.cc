#include "model/identity/owner_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {

bool is_possible(CallerKind kind, std::string_view name) {
  const bool exists = kind >= CallerKind::kAnonymous && kind <= kCallerKindLast;
  return exists && name.size() <= limits::kNameBytesMax && name.empty() == (kind == CallerKind::kAnonymous);
}

OwnerTable::Entry& OwnerTable::used(uint32_t number) {
  CHECK(number != kNobody && number <= entries_.size());
  Entry& entry = entries_[number - 1];
  CHECK(entry.is_used);
  return entry;
}

uint32_t OwnerTable::acquire(CallerKind kind, std::string_view name) {
  if (kind == CallerKind{}) return kNobody;
  uint32_t number = find(kind, name);
  if (number == kNobody) {
    if (free_.empty()) {
      entries_.emplace_back();
      number = static_cast<uint32_t>(entries_.size());
    } else {
      number = *free_.begin();
      free_.erase(free_.begin());
    }
    entries_[number - 1] = {.owner = {.kind = kind, .name = std::string(name)}, .is_used = true};
    numbers_[kind].emplace(name, number);
  }
  retain(number);
  return number;
}

void OwnerTable::retain(uint32_t number) {
  if (number != kNobody) ++used(number).references;
}

void OwnerTable::release(uint32_t number) {
  if (number == kNobody) return;
  Entry& entry = used(number);
  CHECK(entry.references > 0);
  if (--entry.references > 0) return;
  const auto kind = numbers_.find(entry.owner.kind);
  kind->second.erase(entry.owner.name);
  if (kind->second.empty()) numbers_.erase(kind);
  entry = {};
  free_.insert(number);
}

uint32_t OwnerTable::find(CallerKind kind, std::string_view name) const {
  const auto names = numbers_.find(kind);
  if (names == numbers_.end()) return kNobody;
  const auto found = names->second.find(name);
  return found == names->second.end() ? kNobody : found->second;
}

const JobOwner* OwnerTable::at(uint32_t number) const {
  if (number == kNobody || number > entries_.size() || !entries_[number - 1].is_used) return nullptr;
  return &entries_[number - 1].owner;
}

bool OwnerTable::restore(JobOwner owner) {
  const auto number = static_cast<uint32_t>(entries_.size() + 1);
  if (owner.kind == CallerKind{}) {
    entries_.emplace_back();
    free_.insert(number);
    return true;
  }
  if (!numbers_[owner.kind].emplace(owner.name, number).second) return false;
  entries_.push_back({.owner = std::move(owner), .is_used = true});
  return true;
}

bool OwnerTable::is_whole() const {
  return (entries_.empty() || entries_.back().is_used) &&
         std::all_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return !entry.is_used || entry.references > 0; });
}

}  // namespace gpusched
