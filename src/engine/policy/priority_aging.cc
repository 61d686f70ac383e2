#include "engine/policy/policies.h"

namespace gpusched::policy {

// All tenants stand in one line: priority and tier, plus what waiting has earned, then submission.
OrderKey PriorityAging::key(const ClassView& job_class) const { return job_class.head.order(); }

}  // namespace gpusched::policy
