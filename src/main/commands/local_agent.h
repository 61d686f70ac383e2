#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "main/serve.h"

namespace gpusched {

/// An agent for the scheduler of this process, on the same machine.
struct LocalAgent {
  std::string node;
  std::string folder;        ///< Its data, and beside it its log: `folder`.log.
  std::string sim_gpus;      ///< Simulated GPUs; empty: the machine's own.
  std::string default_user;  ///< User that jobs run as where we are root; empty: the agent's default.
  int64_t cpus = 0;          ///< Cores to offer; 0: all.
  bool root_jobs = false;    ///< Jobs may run as root.
};

/// Starts gpu-agent, the program beside this one. It gets its end from `end_agent`, not from the terminal's
/// Ctrl-C. kUnavailable: it cannot be started.
Result<pid_t> start_agent(const LocalAgent& agent, const BoundPorts& ports);
/// Ends it, by force after half a minute; its jobs go on whichever way it ends.
void end_agent(pid_t agent);

/// Whether this machine has a driver of GPUs.
bool has_gpu_driver();

}  // namespace gpusched
