#pragma once

#include <functional>
#include <string>

#include "grammar/program.h"

namespace gpusched {

/// `gpu-agent join HOST:PORT [TOKEN] [--token-file F] ...`: looks whether this machine can be a node of that
/// scheduler, writes the agent's configuration, token and data folder, and starts its unit where systemd
/// runs. Again with the same words: the same outcome. `hide` gets a token that was given as a word, so that
/// no list of processes goes on showing it. Exit status: 0 joined, 1 it cannot, 2 wrong arguments.
ProgramCommand join_command(std::string version, std::function<void(const std::string& secret)> hide);

}  // namespace gpusched
