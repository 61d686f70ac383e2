#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "gpusched/v1/node.pb.h"
#include "node/container/container_gpus.h"
#include "node/container/container_options.h"
#include "node/container/container_probe.h"
#include "node/ports/ports.h"

namespace gpusched {

/// Facts of a node that runs containers; the same as long as the agent runs.
struct ContainerNode {
  ContainerOptions options;
  ContainerSupport support;
  std::string data_folder;  ///< Absolute.
  std::string instance;
  std::string shim_program;  ///< Absolute.
  std::string home;          ///< Home of the agent's user, for the runtime's client.
  GpuPlaces gpu_places = {};
  int64_t memory_mb = 0;  ///< Memory of the machine.
};

/// The container of an attempt's member: unique on a machine, also beside another agent's.
std::string container_name(const AttemptKey& key, const std::string& instance);

/// Whether a job may mount something, and how: the allow-list's entry that holds `source`, links followed.
/// `source` becomes what it really is. kPermissionDenied: no entry does, or it is to be written and may only
/// be read; kNotFound: it is not there.
Result<Unit> check_mount(const std::vector<std::string>& allowed, std::string& source, bool read_only);

/// The file with a tenant's credential. kPermissionDenied when others than its owner may read it or it is not
/// the agent's own; kNotFound when there is none. Neither names more than the credential.
Result<std::string> find_credential(const std::string& folder, const std::string& tenant,
                                    const std::string& name);

/// Makes `request`, which has everything but the command, run the image of `spec`. Things that the job may
/// not have (a mount, a runtime's option, an absent credential) become a command that says so and ends with
/// 125. kInvalidArgument only where this node runs no containers. `slices` as in plan_launch.
Result<Unit> plan_container(SpawnRequest& request, const v1::StartAttempt& order, const v1::JobSpec& spec,
                            const ContainerNode& node, const std::vector<MadeSlice>& slices = {});

}  // namespace gpusched
