#pragma once

#include <vector>

#include "grammar/program.h"

namespace gpusched {

/// `gpu-scheduler members init|export|join`: data folders of several schedulers that are one. Exit status: 1
/// it could not be done, 2 the command line or the configuration is wrong.
std::vector<ProgramCommand> members_commands();

}  // namespace gpusched
