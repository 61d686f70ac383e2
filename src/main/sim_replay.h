#pragma once

namespace CLI {
class App;
}

namespace gpusched {

/// Adds `gpu-sim replay` to the program. When it was asked for, `status` becomes the program's exit status:
/// 0, or 1 after a sentence on stderr.
void add_replay_command(CLI::App& app, int& status);

}  // namespace gpusched
