#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "consensus/core/values.h"
#include "journal/file_journal.h"

namespace gpusched {

/// The beginning of a replica's log. `members` are the same for all replicas of a group, with the random
/// number of each one's disk.
struct ReplicaSeed {
  uint64_t cluster = 0;  ///< The group's random number, never 0.
  uint64_t id = 0;       ///< This replica; one of the voters.
  /// Terms begin behind this one, the same for all. Nodes refuse orders of terms that are lower than what
  /// they saw, so it must be above every term of an earlier group with the same nodes: seconds since 1970
  /// are.
  uint64_t term = 0;
  consensus::Members members;
};

/// Folder of the replica's log in a scheduler's data folder.
std::string replica_log_folder(const std::string& data_dir);

/// Whether the data folder belongs to a replica of a group.
bool has_replica_log(const std::string& data_dir);

/// Makes the log of a new replica in a data folder that is there, durably. kAlreadyExists: it has one.
/// kInvalidArgument: the seed contradicts itself. kStorageFull, kIo, kLocked.
Result<Unit> create_replica_log(const std::string& data_dir, const ReplicaSeed& seed);

/// Size of a segment of the log's journal: the largest entry fits.
inline constexpr uint64_t kReplicaSegmentBytes = 16u << 20;

}  // namespace gpusched
