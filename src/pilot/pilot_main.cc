#include "pilot/pilot_main.h"

#include <cstdlib>

#include "grammar/program.h"
#include "pilot/commands.h"

namespace gpusched::pilot {

int run_pilot(int argc, char** argv) {
  const Program program{
      .name = "gpu-pilot",
      .version = GPUSCHED_VERSION,
      .summary = "see a need for GPUs coming and hold a lease ready",
      .commands = pilot_commands(),
      .exit_codes = "Exit status: 0: done; 1: it failed; 2: wrong command line or configuration.",
      .manual_section = 1};
  return run_program(program, program_words(argc, argv), process_program_io());
}

}  // namespace gpusched::pilot
