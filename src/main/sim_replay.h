#pragma once

#include "grammar/program.h"

namespace gpusched {

/// `gpu-sim replay`: what policies make of a recorded trace. Exit status: 0, or 1 after a sentence on stderr.
ProgramCommand replay_command();

/// `gpu-sim whatif`: what another policy would have made of a scheduler's own jobs. Exit status as above.
ProgramCommand what_if_command();

}  // namespace gpusched
