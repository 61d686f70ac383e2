#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "node/gpu/gpu_daemons.h"

namespace gpusched::kubernetes {

/// How the API server of Kubernetes is reached.
struct ApiOptions {
  bool on = false;  ///< The agent writes its node's GpuNodeStatus, and runs no jobs.
  /// "https://host:port"; empty: that of the pod's environment (KUBERNETES_SERVICE_HOST and _PORT).
  std::string url = {};
  /// Folder with the account's `token`, read at each call, and the authority's `ca.crt`.
  std::string account = "/var/run/secrets/kubernetes.io/serviceaccount";
};

/// A node, and how its GPUs are looked at.
struct StatusOptions {
  std::string node;
  std::string sim_gpus = {};      ///< Empty: the machine's own GPUs; see open_sim_driver.
  std::string sim_links = {};     ///< Links of simulated ones; see parse_sim_links.
  std::string sim_control = {};   ///< File that changes simulated ones; empty: none does.
  std::string nvml_library = {};  ///< Empty: the system's.
  std::string nvidia_smi = {};    ///< Asked where NVML finds nothing; empty: the one in $PATH.
  std::vector<std::string> gpu_daemons = default_gpu_daemons();
  ApiOptions api = {};
};

/// Writes the node's GpuNodeStatus by server-side apply, at once when something has changed and else every
/// 30 s, until `stop_descriptor` is readable. A server that does not answer, or that refuses, is logged and
/// asked again. An error says why it cannot begin.
Result<Unit> serve_node_status(const StatusOptions& options, int stop_descriptor);

}  // namespace gpusched::kubernetes
