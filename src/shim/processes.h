#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Looks at processes through /proc. A fact that is read may be out of date by the time that it is used: a
/// pid found here is only ever killed when its reuse is excluded or harmless. Thread-safe.
namespace gpusched::shim {

/// The first `size_max` bytes of a file; empty when it cannot be read (the process is gone).
std::string read_small_file(const char* path, std::size_t size_max);

/// Children of every thread of `pid`, zombies included.
std::vector<pid_t> children_of(pid_t pid);
/// Children, their children and so on, without `root` itself.
std::vector<pid_t> descendants_of(pid_t root);

/// The parent that /proc shows; 0 when the process is gone.
pid_t parent_of(pid_t pid);
/// When the process began, in the kernel's ticks since the machine did; 0 when it is gone. With the pid this
/// names a process for as long as the machine runs.
uint64_t start_ticks_of(pid_t pid);
/// Its real, effective and saved user and that of the file system all are `user`; of a process that hides its
/// memory, too, whose files in /proc are root's.
bool runs_as(pid_t pid, uid_t user);
/// Whether the process is a gpu-shim that this user started, whatever any process calls itself: all its user
/// numbers are ours, and it executes a program of that name that gives nobody another user's rights and is
/// root's, ours, or of whoever owns `program`, the gpu-shim beside us. That one may have been replaced since.
bool is_shim(pid_t pid, const char* program);

/// Every process that /proc shows.
std::vector<pid_t> all_processes();
/// `pid` is `ancestor` or was started by it, its children, or theirs, as /proc shows it now.
bool descends_from(pid_t pid, pid_t ancestor);
/// The process's environment has the entry `entry` ("NAME=value"). False of one that is gone or not ours to
/// see.
bool has_environment(pid_t pid, std::string_view entry);
/// Processes whose environment has the entry `entry` ("NAME=value"), and the descendants of these.
std::vector<pid_t> processes_with_environment(std::string_view entry);

/// The words of a process's command line, as it shows them now; empty for zombies and kernel threads.
std::vector<std::string> command_line(pid_t pid);

}  // namespace gpusched::shim
