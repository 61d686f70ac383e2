#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace gpusched {

struct CommandResult {
  int exit_code = -1;  ///< -1: it could not be run, or not in time.
  std::string output = {};
  std::string errors = {};
};

/// Longest `input` of `run_command`: as much as a pipe holds.
inline constexpr std::size_t kCommandInputMax = 60'000;

/// Runs a program with a whole environment, in a session of its own, and waits for it, at most `patience`, or
/// until `*stop`; then its process group is killed. Its standard input is `input`, which must be no longer
/// than kCommandInputMax; no other file of this process is open in it. Output beyond 1 MiB is dropped.
/// Thread-safe.
CommandResult run_command(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                          Duration patience, const std::atomic<bool>* stop = nullptr,
                          std::string_view input = {});

}  // namespace gpusched
