#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "ops/run_command.h"

/// Parts of the drivers that run an operator's programs.
namespace gpusched::machines {

/// The process's environment without the scheduler's settings, some of which are secret.
std::vector<std::string> program_environment();
/// Text of an unknown author, cut to 400 bytes and put on one line.
std::string shown_text(std::string_view text);
/// Reason why a run with an exit status other than 0 does not count, with the program's words.
std::string program_failure(const CommandResult& ran, Duration timeout);

}  // namespace gpusched::machines
