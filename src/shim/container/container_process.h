#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

/// The processes of a running container, as the machine sees them.
namespace gpusched::shim {

/// The first process of the container that a runner (`gpu-shim --container PLAN...`) has started: our own
/// program, which the runtime made that. `runner`: its command line, to be trusted. kNotFound while it does
/// not run; kUnavailable for runtimes that tell nothing of it.
Result<pid_t> container_init(const std::vector<std::string>& runner);

/// The job's command: the oldest child of that process; 0 when there is none any more.
pid_t container_command(pid_t init);

}  // namespace gpusched::shim
