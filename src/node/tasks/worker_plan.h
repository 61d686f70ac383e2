#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpusched/v1/node.pb.h"
#include "gpusched/v1/types.pb.h"
#include "node/ports/ports.h"

namespace gpusched {

/// Whether the order is of a task for a persistent worker: its job asks for one, and its box can be a
/// worker's: no container, no gang, no MIG slice, no files of its own. Else it runs as any job does.
bool is_for_worker(const v1::StartAttempt& order, const v1::JobSpec& spec);

/// The worker of such a task, and its frame. `user`: whom it runs as. `environment`: a whole one of the
/// order's attempt, without the variables of its specification, which are the task's. Null: its payload is
/// none, or too large, or its endpoint is none; and `spec` is as it was. Else what is the task's own is gone
/// from `spec`.
std::shared_ptr<const WorkerPlan> plan_worker(const v1::StartAttempt& order, v1::JobSpec& spec,
                                              const std::string& user, std::vector<std::string> environment);

/// The entry with the name of one attempt in the place of another's: its mark, and paths of its folder.
std::string with_key(const std::string& entry, const std::string& key, const std::string& other);

}  // namespace gpusched
