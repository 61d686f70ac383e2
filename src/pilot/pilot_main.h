#pragma once

namespace gpusched::pilot {

/// The program gpu-pilot. Returns its exit status.
int run_pilot(int argc, char** argv);

}  // namespace gpusched::pilot
