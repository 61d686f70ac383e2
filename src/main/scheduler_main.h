#pragma once

#include "grammar/program.h"

namespace gpusched {

/// `gpu-scheduler`: what it understands. It serves, or runs one of its commands (`dev`, `journal`).
Program scheduler_program();

/// Runs it. Returns the exit status: 0 after a clean end, 1 when it could not start or serve, 2 for a wrong
/// command line or configuration.
int run_scheduler(int argc, char** argv);

}  // namespace gpusched
