#pragma once

namespace gpusched {

/// `gpu-scheduler dev`: a scheduler here and an agent beside it, until Ctrl-C. `argv[0]` is the word `dev`.
int run_dev_command(int argc, char** argv);

}  // namespace gpusched
