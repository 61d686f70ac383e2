#pragma once

#include <optional>
#include <string_view>

namespace gpusched {

/// A signal that a job may ask to get before it is ended for another one.
struct JobSignal {
  std::string_view name;  ///< "USR1"
  int number = 0;         ///< Signal number of Linux on the machines that run agents.
};

/// "USR1", "SIGUSR1", "usr1" and "10" are one signal. Nothing for what no job can handle, such as KILL, and
/// for what says something else, such as CHLD.
std::optional<JobSignal> parse_job_signal(std::string_view text);

}  // namespace gpusched
