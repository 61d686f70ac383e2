#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "shim/box.h"
#include "shim/protocol.h"

namespace gpusched::shim {

struct Usage {
  int64_t memory_bytes = 0;
  int64_t tasks = 0;  ///< Processes and their threads.
};

/// Use of processes together. Memory is first counted as resident, each for itself; only when that passes
/// `memory_bytes_max` it is counted again with shared pages divided among those that share them, which the
/// kernel takes long to find out. 0: never again. Thread-safe.
Usage usage_of(const std::vector<pid_t>& processes, int64_t memory_bytes_max);

/// Use of an attempt until now, when all its processes are gone: the groups have counted each of them. Where
/// they do not count, the caller's children did: those that were waited for, by it or by each other. For a
/// container those are only its runner, and are left out. Thread-safe.
MeasuredUsage measure_usage(const Box& box, bool container);

}  // namespace gpusched::shim
