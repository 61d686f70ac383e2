#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "machines/machines.h"

namespace gpusched {

/// A pool as the file has it, before its provider is made.
struct PoolEntry {
  provision::Pool pool;
  std::string driver;                           ///< "command", "slurm" or "local"
  std::vector<std::string> command;             ///< Setting of the driver `command`.
  std::map<std::string, std::string> settings;  ///< The same.
  Duration timeout = seconds(120);              ///< Setting of the drivers `command` and `slurm`.
  std::vector<std::string> resume, suspend;     ///< Settings of the driver `slurm`.
  std::vector<std::string> resume_fail;         ///< The same; empty: none.
  Duration suspend_time = seconds(30);          ///< The same.
  Duration delay = {};                          ///< Setting of the driver `local`.
  std::vector<std::string> agent_options;       ///< The same: of each agent's command line.
  std::string folder;                           ///< The same: of its machines; empty: in the data folder.
  Duration poll = seconds(10);
  Duration sweep = seconds(60);
  int64_t calls_per_minute = 60;
};
struct PoolsFile {
  std::vector<PoolEntry> pools;
  Duration every = seconds(1);        ///< Between two decisions.
  Duration pool_pause = seconds(30);  ///< After a pool failed to give a machine.
};

/// Reads the file of `machines.pools_file`. kInvalidArgument: all that is wrong with it, one problem a line
/// with file and line number.
Result<PoolsFile> parse_pools_file(const std::string& path, const std::string& text);

/// The same from the disk, and from nobody's hand but root's and this process's user, because it names
/// programs: kPermissionDenied when others may write it; kNotFound, kIo: it cannot be read.
Result<PoolsFile> load_pools_file(const std::string& path);

/// Where this scheduler is, for its pools.
struct PoolsPlace {
  std::string data_dir;  ///< Absolute.
  std::string owner;     ///< Name of the cluster.
  /// Program and first arguments of an agent of this scheduler on this machine. Called when one starts.
  std::function<std::vector<std::string>()> agent;
};
/// Makes the pools' providers and reads the record in the data folder.
Result<std::unique_ptr<machines::Machines>> open_machines(const PoolsFile& file, const PoolsPlace& place);

}  // namespace gpusched
