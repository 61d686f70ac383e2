#include "node/container/container_options.h"

#include <CLI/CLI.hpp>

#include "base/limits.h"

namespace gpusched {

void declare_container_options(CLI::App& app, ContainerOptions& options) {
  app.add_option("--container-runtime", options.runtime,
                 "Container runtime: podman, docker, apptainer, none, or auto for the first one that works "
                 "(default: auto)")
      ->check(CLI::IsMember({"auto", "podman", "docker", "apptainer", "none"}));
  app.add_option("--container-client-option", options.client_options,
                 "Option for every call of the runtime, such as --runtime=runc; may be repeated");
  app.add_option("--container-mount", options.mounts,
                 "Folder that jobs may mount, including everything below it: PATH or PATH:ro; may be "
                 "repeated (default: none)");
  app.add_option("--container-job-option", options.job_options,
                 "Option of the runtime's `run` that jobs may use: --ipc=host exactly, --shm-size= with any "
                 "value; may be repeated (default: none)");
  app.add_option(
      "--container-network", options.network,
      "Network of containers: host, none, or a network of the runtime; gangs need host (default: host)");
  app.add_option("--container-credentials", options.credentials_folder,
                 "Folder with registry credentials: TENANT/NAME.json, mode 0600 (default: none)");
  app.add_option("--container-pull-patience-ms", options.pull_patience_ms,
                 "Milliseconds for which a failing pull of an image is retried (default: 1800000)")
      ->check(CLI::Range(int64_t{0}, limits::kRuntimeMax.ms()));
}

}  // namespace gpusched
