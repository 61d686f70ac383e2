#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/ports/ports.h"

namespace gpusched {

/// Programs that stay on GPUs by themselves and are no job's: they speak against no release. MPS's server and
/// control daemon, DCGM, the display, persistence.
std::vector<std::string> default_gpu_daemons();

/// Facts about one process, from the machine.
struct ProgramFacts {
  std::string name;      ///< Name of its executable's file.
  bool trusted = false;  ///< Only root can have put that file there, or the process is none of our users'.
  std::string mps_directory = {};  ///< Its CUDA_MPS_PIPE_DIRECTORY; empty: it has none, or may not be asked.
};

/// The program that a process runs; absent: there is no such process, or it cannot be looked at.
std::optional<ProgramFacts> program_of_process(int64_t pid, const std::string& proc_folder = "/proc");

/// Takes daemons out of a reading's processes, and of its slices', into `DeviceReading::daemons`.
/// `program_of` looks at a process. A process that only calls itself like one stays what it is.
template <typename ProgramOf>
void set_daemons_apart(DeviceReading& reading, const std::vector<std::string>& names, ProgramOf&& program_of);

// Implementation.

namespace detail {
std::optional<DaemonReading> daemon_of(const std::optional<ProgramFacts>& program,
                                       const std::vector<std::string>& names);
}

template <typename ProgramOf>
void set_daemons_apart(DeviceReading& reading, const std::vector<std::string>& names,
                       ProgramOf&& program_of) {
  std::vector<int64_t> others;
  std::vector<int64_t> others_mb;
  for (std::size_t i = 0; i < reading.processes.size(); ++i) {
    const int64_t pid = reading.processes[i];
    const int64_t memory_mb = i < reading.process_memory_mb.size() ? reading.process_memory_mb[i] : -1;
    if (std::optional<DaemonReading> daemon = detail::daemon_of(program_of(pid), names)) {
      daemon->pid = pid;
      daemon->memory_mb = memory_mb;
      reading.daemons.push_back(std::move(*daemon));
      continue;
    }
    others.push_back(pid);
    if (!reading.process_memory_mb.empty()) others_mb.push_back(memory_mb);
  }
  reading.processes = std::move(others);
  reading.process_memory_mb = std::move(others_mb);
  for (SliceReading& slice : reading.slices) {
    std::erase_if(slice.processes,
                  [&](int64_t pid) { return detail::daemon_of(program_of(pid), names).has_value(); });
  }
}

}  // namespace gpusched
