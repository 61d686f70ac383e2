#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace gpusched {

class Grammar;

/// How this node runs containers, as its operator said it.
struct ContainerOptions {
  std::string runtime = "auto";             ///< podman, docker, apptainer, none; auto: the first that works.
  std::vector<std::string> client_options;  ///< For every call of the runtime: `--runtime=runc`.
  /// Folders that jobs may mount: "/data" or "/data:ro", with everything below. Empty: none.
  std::vector<std::string> mounts;
  /// Further options of `run` that jobs may give: "--ipc=host" exactly, "--shm-size=" with any value.
  std::vector<std::string> job_options;
  std::string network = {};        ///< Empty: host, and nobody said so.
  std::string credentials_folder;  ///< TENANT/NAME.json below it, mode 0600; empty: no credentials.
  int64_t pull_patience_ms = 30 * 60 * 1000;
};

/// Declares `--container-*` of gpu-agent.
void declare_container_options(Grammar& grammar, ContainerOptions& options);

}  // namespace gpusched
