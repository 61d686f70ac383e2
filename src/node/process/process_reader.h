#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace gpusched {

/// Reads other processes' arguments and environments. Both are read through the process's memory, and a
/// process that the kernel holds there holds whoever reads it: each reading takes place on a thread that is
/// left behind when it hangs, and a process that held one is not asked again. Not thread-safe.
class ProcessReader {
 public:
  /// Reads /proc/<pid>/<file>; empty: gone, or not for us to read. Called on other threads.
  using Read = std::function<std::string(pid_t pid, const std::string& file)>;

  ProcessReader();
  /// For tests.
  ProcessReader(Read read, Duration patience) : read_(std::move(read)), patience_(patience) {}

  /// Texts of the processes that answered. `hung`: those that did not.
  std::map<pid_t, std::string> read_all(const std::vector<pid_t>& pids, const std::string& file,
                                        std::vector<pid_t>* hung = nullptr);
  /// The words of its command line; none when it has gone or hangs.
  std::vector<std::string> command_line(pid_t pid);
  bool has_environment(pid_t pid, const std::string& entry);
  /// Processes of this machine with the entry, and their descendants.
  std::vector<pid_t> processes_with_environment(const std::string& entry);

 private:
  struct Batch;

  bool is_held(pid_t pid) const;

  Read read_;
  Duration patience_;
  std::map<pid_t, uint64_t> held_;  ///< Processes that hung, by when they began.
};

/// The zero-ended words of a command line or an environment.
std::vector<std::string> words_of_process(const std::string& text);

}  // namespace gpusched
