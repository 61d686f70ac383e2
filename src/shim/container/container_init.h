#pragma once

#include <string>
#include <string_view>

/// The first process of a container, and what it says to the runner outside.
///
/// The program is mounted into the container by the runtime (podman: --init-path), so it is the very same
/// gpu-shim. It starts the job's command in a group of its own, passes signals on to the group, collects
/// orphans, and ends as soon as the command has ended: the kernel then ends whatever else is in the
/// container. Facts that a runtime's exit code cannot say (a signal against an exit code above 128, a kill by
/// the kernel for memory) go through a descriptor that the runtime hands on.
namespace gpusched::shim {

inline constexpr int kInitStatusDescriptor = 3;       ///< Lines of InitStatus; not handed to the command.
inline constexpr int kInitEnvironmentDescriptor = 4;  ///< "NAME=value", each ended by a zero byte.

/// Progress reported by the init process so far.
struct InitStatus {
  bool started = false;  ///< The command runs.
  int start_error = 0;   ///< errno: there is no command.
  bool ended = false;    ///< `wait_status` is the command's, as wait(2) gives it.
  int wait_status = 0;
  int64_t oom_kills = 0;  ///< Processes of the container that the kernel killed for memory.
};

/// Reads the lines so far. An unfinished or unknown line is passed over.
InitStatus parse_init_status(std::string_view text);

/// "init -- COMMAND ...", which is how runtimes call it.
bool is_container_init(int argc, char** argv);

/// Returns the container's exit status: the command's, 128 + signal, or a shell's 126 and 127.
int run_container_init(int argc, char** argv);

}  // namespace gpusched::shim
