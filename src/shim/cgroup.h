#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shim/box.h"

/// Single cgroups of either version, by their folders. No state, no third-party library: the shim uses this
/// right after fork. Thread-safe.
namespace gpusched::shim {

/// Makes the group and writes its settings. Empty, or what went wrong; then the folder may be there.
std::string make_cgroup(const CgroupFolder& folder);

/// Processes of the group and of groups below it.
std::vector<pid_t> cgroup_processes(const std::string& path);

/// One round of SIGKILL to everything in the group and below, such that nothing can fork away from it where
/// the kernel allows (cgroup.kill, or the freezer). True when nothing was left. Never kills the caller.
bool kill_cgroup(const std::string& path);
/// The best of the attempt's groups to kill by; null when there is none.
const CgroupFolder* killing_cgroup(const std::vector<CgroupFolder>& folders);

/// Removes the group and empty groups below it. False when something is left in it.
bool remove_cgroup(const std::string& path);

/// Name of the empty group that an agent keeps in its folder for as long as it runs, so that nobody removes
/// that.
inline constexpr const char* kHeldGroup = "held";
/// Removes the agent's folder in which the attempt's group `path` was, if the agent has ended and no other
/// attempt has a group there.
void remove_left_folder(const std::string& path);

/// Returns how many of its processes the OOM killer ended; 0 also if this is not a memory group.
uint64_t cgroup_oom_kills(const std::string& path);
/// Returns how often its process limit refused a new one; 0 also if this is not a pids group.
uint64_t cgroup_refused_forks(const std::string& path);

/// Returns the highest memory use of all its processes together, with what the kernel keeps of files for
/// them, in bytes; 0 also if this is not a memory group, or the kernel does not tell (version 2 before
/// Linux 5.19).
int64_t cgroup_peak_memory_bytes(const CgroupFolder& folder);
/// Returns the processor time that all its processes took, in ns; 0 also if it is not counted here.
int64_t cgroup_cpu_ns(const CgroupFolder& folder);

/// Attaches a program to a version 2 group that lets its processes use nothing but `rules`. Empty, or what
/// went wrong.
std::string fence_devices(const std::string& path, const std::vector<DeviceRule>& rules);

}  // namespace gpusched::shim
