#pragma once

#include "grammar/program.h"

namespace gpusched {

/// `gpu-scheduler dev`: a scheduler here and an agent beside it, until Ctrl-C.
ProgramCommand dev_command();

}  // namespace gpusched
