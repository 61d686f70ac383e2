#pragma once

#include <string>
#include <vector>

#include "grammar/program.h"

namespace gpusched {

struct ProgramRun {
  int status = 0;
  std::string out;
  std::string err;
};

/// Runs a program with its output caught and no environment but `environment`, each as "NAME=value".
ProgramRun run_caught(const Program& program, const std::vector<std::string>& words,
                      const std::vector<std::string>& environment = {});

/// Checks of every command of a program what its grammar promises: the help and the manual page have all
/// options, completion offers them, and each mistake is one sentence and kProgramUsage: an unknown option, a
/// missing value, a number out of its bounds, an option that is given twice.
void expect_a_sound_grammar(const Program& program);

}  // namespace gpusched
