#pragma once

namespace gpusched {

/// `gpu-agent`'s command line. Works until SIGTERM or SIGINT; jobs go on. Returns the exit status: 0 after a
/// clean end, 2 for a wrong command line, 1 for everything that keeps the agent from starting, said in one
/// line. Call it before any thread is started.
int run_agent(int argc, char** argv);

}  // namespace gpusched
