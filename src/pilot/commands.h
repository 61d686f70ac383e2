#pragma once

#include <vector>

#include "grammar/program.h"

namespace gpusched::pilot {

/// The commands of gpu-pilot: run, check, explain, status, audit, doctor, seal, example.
std::vector<ProgramCommand> pilot_commands();

}  // namespace gpusched::pilot
