#pragma once

#include "grammar/program.h"

namespace gpusched {

/// `gpu-scheduler accept-clock --data-dir DIR`: an operator's word that this machine's clock is right
/// although it is far from the newest time in the journal. No scheduler may run on the folder. Exit status:
/// 0 it is accepted, 1 it could not be, 2 the command line is wrong.
ProgramCommand accept_clock_command();

}  // namespace gpusched
