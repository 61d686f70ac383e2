#include "anticipate/learning.h"

#include <algorithm>

namespace gpusched::anticipate {

void Learning::count(const std::string& rule, bool was_used) {
  if (records_.size() >= kRulesMax && !records_.contains(rule)) return;
  Record& record = records_[rule];
  (was_used ? record.hits : record.misses) += 1;
  if (record.hits + record.misses <= kRemembered) return;
  record.hits /= 2;
  record.misses /= 2;
}

int32_t Learning::weight_of(std::string_view rule, int32_t weight) const {
  constexpr int64_t kTrust = 4;  // As if it had been right so often before its first outcome.
  const auto found = records_.find(std::string(rule));
  if (found == records_.end() || weight <= 0) return weight;
  const Record& record = found->second;
  const int64_t learned = weight * (record.hits + kTrust) / (record.hits + record.misses + kTrust);
  return static_cast<int32_t>(std::max<int64_t>(learned, std::max(weight / 10, 1)));
}

}  // namespace gpusched::anticipate
