#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"

namespace gpusched {

/// A replica's cluster, as its data folder says: the file `replica/group.json`.
struct ReplicaGroup {
  uint64_t cluster = 0;                 ///< The cluster's random number.
  uint64_t id = 0;                      ///< This replica's.
  uint64_t term = 0;                    ///< Terms begin behind it.
  uint64_t position = 0;                ///< Last journal record when the cluster began: all replicas have it.
  std::map<uint64_t, uint64_t> stores;  ///< The random number of each replica's disk, by its id.

  friend bool operator==(const ReplicaGroup&, const ReplicaGroup&) = default;
};

/// Path of that file, in a data folder or, with an empty name, in a backup.
std::string replica_group_file(const std::string& data_dir);

/// kNotFound: the folder is that of a scheduler that is the only one. kCorrupt: the file is not whole.
Result<ReplicaGroup> read_replica_group(const std::string& data_dir);
std::string replica_group_text(const ReplicaGroup& group);

/// kInvalidArgument, with what to do: the folder is that of one of several schedulers.
Result<Unit> check_folder_alone(const std::string& data_dir);

}  // namespace gpusched
