#include "replication/replica_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "consensus/core/members.h"
#include "replication/journal_log_store.h"

namespace gpusched {
std::string replica_log_folder(const std::string& data_dir) { return data_dir + "/replica/log"; }

bool has_replica_log(const std::string& data_dir) {
  std::error_code failed;
  return std::filesystem::exists(replica_log_folder(data_dir), failed);
}

Result<Unit> create_replica_log(const std::string& data_dir, const ReplicaSeed& seed) {
  const std::optional<uint64_t> store = consensus::store_of(seed.members, seed.id);
  const auto& voters = seed.members.voters;
  if (seed.cluster == 0 || !store || *store == 0 ||
      std::find(voters.begin(), voters.end(), seed.id) == voters.end()) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "replica " + std::to_string(seed.id) +
                            " is no voter of its group, or its group or its disk has no number"};
  }
  const Result<Unit> made = posix_disk().make_dir(data_dir + "/replica");
  if (!made) return made;
  const Result<Unit> durable = posix_disk().sync_dir(data_dir);
  if (!durable) return durable;
  Result<std::unique_ptr<FileJournal>> journal =
      FileJournal::open(replica_log_folder(data_dir), {.segment_bytes = kReplicaSegmentBytes});
  if (!journal) return journal.error();
  if ((*journal)->last_position() != 0) {
    return Error{.code = ErrorCode::kAlreadyExists,
                 .message = data_dir + " has the log of a replica already; nothing was changed"};
  }
  JournalLogStore log(**journal);
  Result<Unit> done =
      log.create({.cluster = seed.cluster, .replica = seed.id, .store = *store}, seed.members);
  if (done) done = log.append(consensus::HardState{.term = seed.term}, {});
  if (done) done = log.sync();
  if (!done) return done;
  return (*journal)->seal();
}

}  // namespace gpusched
