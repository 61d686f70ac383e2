#include "host/nodes/attempt_table.h"

namespace gpusched::hub {

AttemptRow& AttemptTable::row_of(const Attempt& attempt) {
  const auto [known, fresh] = rows_.try_emplace(key_of(attempt.job, attempt.number));
  if (fresh && attempt.stop != StopReason::kNone) known->second.state = AttemptState::kStopping;
  return known->second;
}

AttemptRow* AttemptTable::find(JobId job, uint32_t attempt) {
  const auto known = rows_.find(key_of(job, attempt));
  return known == rows_.end() ? nullptr : &known->second;
}

bool AttemptTable::advance(AttemptRow& row, AttemptState to) {
  if (!may_become(row.state, to)) return false;
  row.state = to;
  return true;
}

void AttemptTable::erase(JobId job, uint32_t attempt) { rows_.erase(key_of(job, attempt)); }

}  // namespace gpusched::hub
