#include "node/container/container_options.h"

#include "base/limits.h"
#include "grammar/grammar.h"

namespace gpusched {

void declare_container_options(Grammar& grammar, ContainerOptions& options) {
  grammar.heading("Containers");
  grammar
      .option("--container-runtime", "NAME", &options.runtime,
              "Container runtime: podman, docker, apptainer, none, or auto for the first one that works "
              "(default: auto)")
      .of({"auto", "podman", "docker", "apptainer", "none"});
  grammar.option("--container-client-option", "OPTION", &options.client_options,
                 "Option for every call of the runtime, such as --runtime=runc; may be repeated");
  grammar
      .option("--container-mount", "PATH[:ro]", &options.mounts,
              "Folder that jobs may mount, including everything below it; may be repeated (default: none)")
      .completes(Complete::kFolder);
  grammar.option("--container-job-option", "OPTION", &options.job_options,
                 "Option of the runtime's `run` that jobs may use: --ipc=host exactly, --shm-size= with any "
                 "value; may be repeated (default: none)");
  grammar.option(
      "--container-network", "NAME", &options.network,
      "Network of containers: host, none, or a network of the runtime; gangs need host (default: host)");
  grammar
      .option("--container-credentials", "DIR", &options.credentials_folder,
              "Folder with registry credentials: TENANT/NAME.json, mode 0600 (default: none)")
      .completes(Complete::kFolder);
  grammar
      .option("--container-pull-patience-ms", "MS", &options.pull_patience_ms,
              "Milliseconds for which a failing pull of an image is retried (default: 1800000)")
      .range(0, limits::kRuntimeMax.ms());
}

}  // namespace gpusched
