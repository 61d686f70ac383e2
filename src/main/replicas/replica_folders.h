#pragma once

#include <cstdint>
#include <string>

#include "backup/backup.h"
#include "base/result.h"
#include "config/config.h"
#include "main/replicas/replica_group.h"

/// Data folders of schedulers of which several are one. Their schedulers do not run meanwhile. In a program
/// that was built without the consensus of replicas every function but `check_alone` answers kUnavailable.
namespace gpusched {

/// Refuses the start of a scheduler that is the only one in a folder of one of several: it would go on alone
/// while the others decide, too. Also refuses `replica.peers` in a program without the consensus.
Result<Unit> check_alone(const Config& config, const std::string& data_dir);

/// Makes the data folder of a scheduler the first of the cluster that `replica.peers` names, with the keys
/// and the authority that all of its replicas have. kAlreadyExists: it is one of a cluster. kNotFound: there
/// is no journal. kLocked: its scheduler runs. kInvalidArgument: `replica.peers` is empty. kIo, kStorageFull.
Result<ReplicaGroup> begin_group(const Config& config, const std::string& data_dir);

/// Makes the folder of a replica that of a scheduler that is the only one, for `begin_group`: its journal
/// gets all that its log has, also what it did not know to be agreed on. Its old cluster must not run any
/// more. kNotFound: it is no replica's folder. kCorrupt: journal and log contradict each other, and nothing
/// was changed. kLocked, kIo, kStorageFull.
Result<Unit> leave_group(const std::string& data_dir);

/// Writes everything that replica `id` begins with into one new file, a tar archive of mode 0600. It holds
/// secrets. kUnavailable: the cluster decided something since `begin_group`, so that a copy of one folder is
/// not enough. Other errors as `begin_group` and `backup::make_backup`.
Result<backup::Summary> export_replica(const Config& config, const std::string& data_dir, uint64_t id,
                                       const std::string& file, const backup::BackupOptions& options);

/// Makes the data folder of such a file, and removes the file: a replica made twice would forget what it
/// agreed to. Errors as `backup::restore_backup`; kInvalidArgument: it is no such file, or the configuration
/// names another replica. An error leaves the folder empty.
Result<ReplicaGroup> join_group(const Config& config, const std::string& file, const std::string& data_dir);

}  // namespace gpusched
