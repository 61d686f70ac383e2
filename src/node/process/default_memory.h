#pragma once

#include <cstdint>

#include "gpusched/v1/node.pb.h"

namespace gpusched {

/// Resources of a node, from which the default limit of a job's memory is computed.
struct NodeMemory {
  int64_t total_mb = 0;      ///< Memory of the machine.
  int64_t offered_mb = 0;    ///< To jobs; may be more than there is.
  int64_t cpu_milli = 0;     ///< Offered, in thousandths of a core.
  int64_t device_count = 0;  ///< GPUs of the node, missing ones included.
};

/// Memory limit in MB of an attempt whose job names none: the node's memory without what the system keeps (5
/// %, at least 1 GiB, at most a quarter), times the larger one of the attempt's shares of the node's GPUs and
/// cores. Never less than 1 GiB, unless the node has less, and never more than the node has for jobs. Pure.
int64_t default_memory_mb(const v1::StartAttempt& order, const NodeMemory& node);

}  // namespace gpusched
