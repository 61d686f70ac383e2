#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "config/config.h"
#include "ops/notify.h"

namespace gpusched {

/// Serves as one of the schedulers that `replica.peers` names, until SIGINT or SIGTERM: passes its ports on
/// to the leader, and serves itself while it leads. When it loses the lead, the process starts again under
/// the same id. Signals must be blocked (`block_signals`), and the log set up. Returns the exit status;
/// nothing: this scheduler is the only one, and nothing was done. Errors as `find_replica_place`,
/// `ReplicaNode::start` and `Service::start`; kUnavailable: this program was built without the consensus of
/// replicas.
Result<std::optional<int>> serve_as_replica(const ConfigInputs& inputs, const Config& config,
                                            const std::string& data_dir, const ServiceNotifier& manager);

}  // namespace gpusched
