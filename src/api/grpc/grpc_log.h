#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "base/time.h"

namespace gpusched::api {

/// Allows so many lines in each span of time, whatever is said. Thread-safe.
class LineAllowance {
 public:
  LineAllowance(int64_t lines, Duration span) : lines_(lines), span_(span) {}
  /// Nothing: not this line. Otherwise how many were left out since the last one that was not. `now`:
  /// monotonic.
  std::optional<int64_t> take(Time now);

 private:
  const int64_t lines_;
  const Duration span_;
  std::mutex mutex_;
  Time began_;
  int64_t taken_ = 0;
  int64_t left_out_ = 0;
};

/// Sends gRPC's messages to our log from now on, and not to standard error: at the level debug, and its
/// errors, which any stranger causes that breaks a handshake, one a minute as a warning. For the whole
/// process.
void route_grpc_log();

}  // namespace gpusched::api
