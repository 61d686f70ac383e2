#pragma once

namespace gpusched {

/// `gpu-scheduler`: serves, or runs one of its commands (`dev`, `journal`). Returns the exit status: 0 after
/// a clean end, 1 when it could not start or serve, 2 for a wrong command line or configuration.
int run_scheduler(int argc, char** argv);

}  // namespace gpusched
