#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ops/doctor.h"
#include "pilot/landlock.h"
#include "pilot/outgoing/outbox.h"
#include "pilot/settings.h"

/// What the kernel lets a running pilot do: its own folder, the system's files that names and certificates
/// need, names of files, and the ports of its destinations. Watched files are opened by the helper.
namespace gpusched::pilot {

KernelRules kernel_rules(const PilotSettings& settings, const std::vector<Destination>& destinations);

/// Holds this process to the rules, as the configuration wants. One sentence about it, for the log. Errors as
/// hold_to, if `landlock: required`.
Result<std::string> confine(const PilotSettings& settings, const KernelRules& rules);

/// Tries in a child process whether the kernel refuses a file and a port that the rules do not have.
std::vector<Finding> check_confinement(const PilotSettings& settings, const KernelRules& rules);

}  // namespace gpusched::pilot
