#pragma once

#include <string>
#include <vector>

#include "node/container/container_options.h"
#include "shim/container/container_plan.h"

namespace gpusched {

/// The container runtime that works on this machine, and its abilities.
struct ContainerSupport {
  bool works = false;
  shim::RuntimeClient client = {};  ///< The runtime that jobs get.
  std::string version = {};
  std::string images_stamp = {};  ///< ContainerPlan::images_stamp.
  bool rootless = false;          ///< The runtime maps users by itself.
  std::vector<std::string> features =
      {};  ///< "container", "container:podman": what the node tells the scheduler.
  std::vector<std::string> broken = {};  ///< Wanted runtimes that are installed and do not work: why, each.
  std::string why_not = {};  ///< Reason why the wanted runtimes do not work, and how to repair it.
};

/// The environment of a runtime's client: what it needs of ours, nothing of a job's.
std::vector<std::string> client_environment();

/// Looks for the wanted runtimes in `search_path` (colon-separated) and asks each whether it works. Takes as
/// long as their answers, some tenths of a second each; at most ten seconds each.
ContainerSupport probe_containers(const ContainerOptions& options, const std::string& search_path);

}  // namespace gpusched
