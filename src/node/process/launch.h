#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text/service_port.h"
#include "gpusched/v1/node.pb.h"
#include "node/container/container_launch.h"
#include "node/ports/ports.h"

namespace gpusched {

/// Folders of the programs that an agent which runs as root looks for.
inline constexpr const char* kRootSearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// First entries of every attempt's environment; the job's own entries replace these.
struct LaunchDefaults {
  std::string home = "/";
  std::string user = "nobody";
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  std::string node = {};         ///< The node's name.
  Duration grace = seconds(10);  ///< Where the scheduler names none.
  /// Null: this node runs no container.
  std::shared_ptr<const ContainerNode> containers = {};
  PortRange ports = {};  ///< Ports for services' replicas.
  std::string instance;  ///< Part of the mark that every process of an attempt carries.
};

/// Turns an order into what the shim runs. kInvalidArgument with a sentence for people when it can never run
/// here: a specification that does not parse, an image, no command, a device that is not the one the
/// scheduler means, a user whom this node does not run jobs for. `devices` are the uuids of this node's
/// devices by index. Without `boxes` the attempt lives as the agent does. `slices`: MIG slices, one for each
/// of the order's devices; empty when none is one, or when none is made yet: then it is only looked whether
/// it could run.
Result<SpawnRequest> plan_launch(const v1::StartAttempt& order, const std::vector<std::string>& devices,
                                 const LaunchDefaults& defaults, BoxMaker* boxes = nullptr,
                                 const std::vector<MadeSlice>& slices = {});

/// The whole environment, sorted by name. Device variables are always exactly the granted ones.
std::vector<std::string> build_environment(const v1::StartAttempt& order, const v1::JobSpec& spec,
                                           const LaunchDefaults& defaults, const BoxPlan& box = {},
                                           const std::vector<MadeSlice>& slices = {});

}  // namespace gpusched
