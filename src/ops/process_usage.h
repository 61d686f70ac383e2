#pragma once

#include <cstdint>
#include <optional>

namespace gpusched {

/// Resource usage of this process. Absent: the kernel does not tell.
struct ProcessUsage {
  std::optional<double> cpu_seconds;         ///< In user and system mode, since its start.
  std::optional<double> resident_bytes;      ///< Memory in use.
  std::optional<double> virtual_bytes;       ///< Address space.
  std::optional<double> open_files;          ///< Connections among them.
  std::optional<double> max_files;           ///< No limit: absent.
  std::optional<double> start_time_seconds;  ///< Since 1970, by the wall clock of now.
};

/// Reads it from /proc, in some hundred microseconds. Thread-safe.
ProcessUsage process_usage();

}  // namespace gpusched
