#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The command of an attempt that runs in a container: `gpu-shim --container PLAN...`, a child of its shim.
///
/// It finds or pulls the image, runs the runtime's client in the foreground, passes an order to end on
/// through the runtime, and leaves how the job ended as `verdict` in the attempt's folder, because an exit
/// code of a runtime cannot tell a signal from a number. Until the job's command runs, `progress` in the
/// attempt's folder says what it waits for; then that file goes and the shim gets `ready_signal`.
namespace gpusched::shim {

inline constexpr std::string_view kContainerFlag = "--container";
inline constexpr std::string_view kContainerEndFlag = "--container-end";

/// In front of each entry of the job's environment in the runner's own, where no name then means anything.
inline constexpr char kJobEntryMark = '+';

/// Arguments are the words behind the flag: a plan. Returns the exit status.
int run_container(const std::vector<std::string>& words);

/// Removes the container of a plan, whatever state it is in. 0 once it is certainly gone.
int end_container(const std::vector<std::string>& words);

/// For the shim of such an attempt, whose `arguments` begin with the program and the flag and end with null.
/// Leaves the plan in the attempt's folder, where an agent finds it that has to end the container, and says
/// that the attempt is not running yet. False with errno when that cannot be written.
bool note_container(int folder, const std::vector<char*>& arguments);
/// Has the container removed, and comes back when it is gone.
void remove_container(const std::vector<char*>& arguments);

}  // namespace gpusched::shim
