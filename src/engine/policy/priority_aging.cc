#include "engine/policy/policies.h"

namespace gpusched::policy {

QueueKey PriorityAging::key(const LineView& line) const { return {.ranks = {}, .head = line.order}; }

}  // namespace gpusched::policy
