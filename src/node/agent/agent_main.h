#pragma once

#include <functional>
#include <string>

#include "grammar/program.h"

namespace gpusched {

/// `gpu-agent`: what it understands. `hide` gets a secret that was given as a word.
Program agent_program(std::function<void(const std::string& secret)> hide);

/// Runs it. Works until SIGTERM or SIGINT; jobs go on. Returns the exit status: 0 after a clean end, 2 for a
/// wrong command line, 1 for everything that keeps the agent from starting, said in one line. Call it before
/// any thread is started.
int run_agent(int argc, char** argv);

}  // namespace gpusched
