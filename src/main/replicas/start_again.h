#pragma once

namespace gpusched {

/// Keeps the words and the environment of this start. Call it first in `main`, before anything is taken out
/// of the environment.
void remember_start(char** argv);

/// Replaces this process by a new start of the same program, with the words and the environment of this start
/// and the same process id. Every descriptor above the three standard ones is closed, every lock is free.
/// Ends the process when that fails.
[[noreturn]] void start_again();

}  // namespace gpusched
