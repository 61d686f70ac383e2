#pragma once

#include <cstdint>
#include <string_view>

#include "base/blob.h"
#include "base/bytes.h"
#include "base/time.h"

namespace gpusched {

/// Resources that an attempt, or one member of it, used, as its nodes measured them. Zero: not known.
struct Usage {
  int64_t peak_memory_bytes = 0;  ///< Highest memory use of one member.
  bool peak_of_process = false;   ///< Only of a member's largest process: all together had at least as much.
  Duration cpu_time;              ///< User and system time of all processes.
  int64_t gpu_busy_ms = 0;        ///< Part of the next in which its GPUs were busy.
  int64_t gpu_watched_ms = 0;  ///< Time for which GPUs were watched that nobody else had, added up over them.
  /// Highest memory use of one member's GPUs together, at a look of its agent. A task that has a persistent
  /// worker beside others counts an equal part of the worker's.
  int64_t peak_gpu_memory_mb = 0;

  bool is_known() const {
    return peak_memory_bytes > 0 || cpu_time.ns > 0 || gpu_watched_ms > 0 || peak_gpu_memory_mb > 0;
  }
  /// Adds what another member used: the highest peak, and the sums of the times. Sums end at kUsageMax.
  void add(const Usage& member);

  friend bool operator==(const Usage&, const Usage&) = default;
};

/// Resources that all members of an attempt used together.
struct AttemptUsage {
  Usage total;
  uint32_t members_unknown = 0;  ///< Members that may have run, and of which nothing is known.

  friend bool operator==(const AttemptUsage&, const AttemptUsage&) = default;
};
/// Writes nothing when nothing is known.
void pack_usage(ByteWriter& writer, const AttemptUsage& usage);
/// Empty when nothing is known.
Blob packed_usage(const AttemptUsage& usage);
/// Nothing is known when the bytes do not parse.
AttemptUsage unpack_usage(std::string_view packed);

}  // namespace gpusched
