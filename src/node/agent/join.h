#pragma once

namespace gpusched {

/// `gpu-agent join HOST:PORT [TOKEN] [--token-file F] ...`: looks whether this machine can be a node of that
/// scheduler, writes the agent's configuration, token and data folder, and starts its unit where systemd
/// runs. Again with the same words: the same outcome. `argv[0]` is the word `join`; a token given there is
/// overwritten at once, so that no list of processes shows it. Returns the exit status: 0 joined, 1 it
/// cannot, 2 wrong arguments.
int run_join(int argc, char** argv, const char* version);

}  // namespace gpusched
