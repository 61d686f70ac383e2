#include "node/attempts/attempt_table.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::agent {
namespace {

constexpr uint32_t bit(AttemptState state) { return uint32_t{1} << static_cast<unsigned>(state); }

template <typename... States>
constexpr uint32_t any_of(States... states) {
  return (bit(states) | ...);
}

/// The states that may follow one. A shim that an earlier agent started, and whose record was lost, speaks
/// for its attempt while this agent prepares to start the same: then it is not started.
constexpr uint32_t followers_of(AttemptState state) {
  using enum AttemptState;
  constexpr uint32_t kBegun = any_of(kGated, kRunning, kExamined, kEnded);
  switch (state) {
    case kAdopted:
      return kBegun;
    case kOrdered:
      return kBegun | any_of(kSlicing, kPreparing, kStarting);
    case kSlicing:
      return kBegun | any_of(kOrdered);
    case kPreparing:
      return kBegun | any_of(kStarting);
    case kStarting:
      return kBegun;
    case kGated:
      return any_of(kRunning, kExamined, kEnded);
    case kRunning:
      return any_of(kExamined, kEnded);
    case kExamined:
      return any_of(kEnded);
    case kEnded:
      return any_of(kCleaning, kReleasing);
    case kCleaning:
      return any_of(kReleasing);
    case kReleasing:
      return any_of(kClosed);
    case kClosed:
      return 0;
  }
  UNREACHABLE();
}

}  // namespace

std::string to_string(AttemptState state) {
  using enum AttemptState;
  switch (state) {
    case kAdopted:
      return "adopted";
    case kOrdered:
      return "ordered";
    case kSlicing:
      return "slicing";
    case kPreparing:
      return "preparing";
    case kStarting:
      return "starting";
    case kGated:
      return "gated";
    case kRunning:
      return "running";
    case kExamined:
      return "examined";
    case kEnded:
      return "ended";
    case kCleaning:
      return "cleaning";
    case kReleasing:
      return "releasing";
    case kClosed:
      return "closed";
  }
  UNREACHABLE();
}

bool may_become(AttemptState from, AttemptState to) { return (followers_of(from) & bit(to)) != 0; }

AttemptRow& AttemptTable::add(const AttemptKey& key, AttemptState state) {
  const auto [place, fresh] = rows_.try_emplace(key, key);
  CHECK(fresh);
  enter(place->second, state);
  if (!is_over(state)) running_count_ += 1;
  return place->second;
}

AttemptRow* AttemptTable::find(const AttemptKey& key) {
  const auto found = rows_.find(key);
  return found == rows_.end() ? nullptr : &found->second;
}

const AttemptRow* AttemptTable::find(const AttemptKey& key) const {
  const auto found = rows_.find(key);
  return found == rows_.end() ? nullptr : &found->second;
}

bool AttemptTable::advance(AttemptRow& row, AttemptState to) {
  if (!may_become(row.state_, to)) return false;
  leave(row);
  if (is_over(to) && !is_over(row.state_)) {
    CHECK(running_count_ > 0);
    running_count_ -= 1;
    if (std::exchange(row.found, false)) found_count_ -= 1;
    set_due(row, Deadline::kEnd, kNever);
    row.run_limit.reset();
    row.activity.reset();
    row.request.reset();
  }
  enter(row, to);
  return true;
}

void AttemptTable::move(AttemptRow& row, AttemptState to) { CHECK(advance(row, to)); }

void AttemptTable::erase(AttemptRow& row) {
  CHECK(row.state_ == AttemptState::kClosed);
  rows_.erase(AttemptKey(row.key));
}

void AttemptTable::enter(AttemptRow& row, AttemptState to) {
  row.state_ = to;
  if (to != AttemptState::kClosed) by_state_[static_cast<std::size_t>(to)].insert(&row);
}

void AttemptTable::leave(AttemptRow& row) {
  by_state_[static_cast<std::size_t>(row.state_)].erase(&row);
  if (row.state_ == AttemptState::kSlicing) {
    set_due(row, Deadline::kSlices, kNever);
    row.slicing.reset();
  } else if (row.state_ == AttemptState::kStarting) {
    set_due(row, Deadline::kStart, kNever);
  } else if (row.state_ == AttemptState::kExamined) {
    set_due(row, Deadline::kExamination, kNever);
    row.examination.reset();
  }
}

void AttemptTable::set_due(AttemptRow& row, Deadline deadline, Time at) {
  Time& due = row.due_[static_cast<std::size_t>(deadline)];
  if (due == at) return;
  if (due != kNever) due_.erase({due, deadline, &row});
  due = at;
  if (due != kNever) due_.emplace(due, deadline, &row);
}

std::vector<AttemptRow*> AttemptTable::late(Deadline deadline, Time now) const {
  std::vector<AttemptRow*> found;
  for (const auto& [due, what, row] : due_) {
    if (due > now) break;
    if (what == deadline) found.push_back(row);
  }
  std::sort(found.begin(), found.end(), ByKey{});
  return found;
}

void AttemptTable::note_found(AttemptRow& row) {
  if (!std::exchange(row.found, true)) found_count_ += 1;
}

}  // namespace gpusched::agent
