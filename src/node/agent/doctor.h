#pragma once

#include "node/agent/agent.h"
#include "ops/doctor.h"

namespace gpusched {

/// Everything that an agent with these options needs of this machine and of its scheduler, each with a
/// verdict and the command that repairs it. `config`: the file that they come from, or empty. Writes and
/// removes one file in the data folder, and leaves an agent that runs alone.
Diagnosis examine_node(const AgentOptions& options, const std::string& config);

/// Whether the wanted container runtimes answer: one that is installed need not run. `search_path` has
/// folders with colons between them.
Finding check_containers(const ContainerOptions& options, const std::string& search_path);

/// Findings that the scheduler itself answers: reachable, version, whether it knows `token` (empty: not
/// asked), clock.
std::vector<Finding> check_scheduler(const AgentOptions& options, const std::string& token);

/// The same of each address of several schedulers that are one. One that does not answer is a warning while
/// another one does.
std::vector<Finding> check_schedulers(const AgentOptions& options, const std::string& token);

}  // namespace gpusched
