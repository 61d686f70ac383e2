#include "engine/policy/policies.h"

namespace gpusched::policy {

// All tenants stand in one line: priority and tier, plus what waiting has earned, then submission.
QueueKey PriorityAging::key(const LineView& line) const { return {.ranks = {}, .head = line.head.order()}; }

}  // namespace gpusched::policy
