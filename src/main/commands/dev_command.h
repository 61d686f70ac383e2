#pragma once

#include "grammar/program.h"

namespace gpusched {

/// `gpu-scheduler dev`: a scheduler here and an agent beside it, until Ctrl-C.
ProgramCommand dev_command();

/// `gpu-scheduler demo`: a scheduler here and an agent beside it run five jobs before the caller's eyes;
/// nothing of it is left.
ProgramCommand demo_command();

}  // namespace gpusched
