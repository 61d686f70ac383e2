#include "main/replicas/replica_folders.h"

#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>

#include "api/contract/token.h"
#include "backup/container.h"
#include "base/check.h"
#include "journal/disk/disk.h"
#include "journal/file_journal.h"
#include "journal/journal_dir.h"
#include "journal/journal_inspect.h"
#include "main/keys/order_key_files.h"
#include "main/own_certificate.h"
#include "main/replicas/replica_place.h"
#include "replication/committed_records.h"
#include "replication/journal_log_store.h"
#include "replication/replica_folder.h"
#include "sign/authority.h"
#include "sign/keys/order_key.h"
#include "sign/keys/private_file.h"
#include "sign/keys/sodium.h"

namespace gpusched {
namespace {

constexpr const char* kHistory = "history/history.db";

Error invalid(std::string why) { return {.code = ErrorCode::kInvalidArgument, .message = std::move(why)}; }

uint64_t random_number() {
  sign::init_sodium();
  uint64_t number = 0;
  while (number == 0) randombytes_buf(&number, sizeof number);
  return number;
}

/// As root: what is made while this lives belongs to the folder's owner, whose scheduler must read it.
class ActingAsOwner {
 public:
  explicit ActingAsOwner(const std::string& data_dir) {
    struct stat facts{};
    if (::geteuid() != 0 || ::stat(data_dir.c_str(), &facts) != 0 || facts.st_uid == 0) return;
    group_ = ::getegid();
    acts_ = ::setegid(facts.st_gid) == 0 && ::seteuid(facts.st_uid) == 0;
  }
  ~ActingAsOwner() {
    if (!acts_) return;
    CHECK(::seteuid(0) == 0 && ::setegid(group_) == 0);
  }
  ActingAsOwner(const ActingAsOwner&) = delete;
  ActingAsOwner& operator=(const ActingAsOwner&) = delete;

 private:
  gid_t group_ = 0;
  bool acts_ = false;
};

/// No scheduler starts in the folder while it is held.
Result<std::unique_ptr<DiskLock>> lock_folder(const std::string& data_dir) {
  if (!read_version(posix_disk(), data_dir + "/journal").ok())
    return Error{.code = ErrorCode::kNotFound,
                 .message = data_dir + " holds no journal: start gpu-scheduler with it once, and stop it"};
  Result<std::unique_ptr<DiskLock>> lock = posix_disk().lock(data_dir + "/journal/" + kLockName);
  if (lock.ok() || lock.error().code != ErrorCode::kLocked) return lock;
  return Error{
      .code = ErrorCode::kLocked,
      .message = lock.error().message + "; stop that scheduler first, and start it when all is done"};
}

Result<Unit> make_secrets(const std::string& data_dir) {
  const std::string folder = authority_folder(data_dir);
  const Result<sign::Authority> authority = sign::Authority::open(folder);
  if (!authority.ok()) return authority.error();
  const Result<sign::OrderKey> orders = sign::OrderKey::open(order_key_files(folder).key);
  if (!orders.ok()) return orders.error();
  const Result<std::string> token = api::load_or_create_token(data_dir);
  if (!token.ok()) return token.error();
  return Unit{};
}

ReplicaSeed seed_of(const ReplicaGroup& group) {
  ReplicaSeed seed{.cluster = group.cluster, .id = group.id, .term = group.term};
  for (const auto& [id, store] : group.stores) {
    seed.members.voters.push_back(id);
    seed.members.stores.push_back({.id = id, .store = store});
    seed.members.id_max = id;
  }
  return seed;
}

/// The log comes last: with it the folder is a replica's.
Result<Unit> make_replica(const ReplicaGroup& group, const std::string& data_dir) {
  if (const Result<Unit> made = renew_peer_certificate(group, data_dir); !made.ok()) return made;
  return create_replica_log(data_dir, seed_of(group));
}

/// Whether the cluster decided anything since it was begun: its log has more than it was made with.
Result<bool> has_decided(const std::string& data_dir) {
  constexpr uint64_t kFirstRecords = 2;  // Identity with members, and the term.
  const Result<JournalScan> scan = inspect_journal(posix_disk(), replica_log_folder(data_dir), {});
  if (!scan.ok()) return scan.error();
  return !scan->segments.empty() && scan->segments.back().scan.last_position > kFirstRecords;
}

/// Appends to the journal what the log has beyond it, durably.
Result<Unit> carry_over(const std::string& data_dir) {
  Result<std::unique_ptr<FileJournal>> log =
      FileJournal::open(replica_log_folder(data_dir), {.segment_bytes = kReplicaSegmentBytes});
  if (!log.ok()) return log.error();
  JournalLogStore store(**log);
  const Result<std::optional<consensus::StoredLog>> stored = store.load();
  if (!stored.ok()) return stored.error();
  Result<std::unique_ptr<FileJournal>> journal = FileJournal::open(data_dir + "/journal", {});
  if (!journal.ok()) return journal.error();
  CommittedRecords records(**journal);
  if (stored->has_value()) {
    for (const consensus::Entry& entry : (*stored)->entries) {
      if (entry.kind != consensus::EntryKind::kData || entry.data.empty()) continue;
      if (const Result<Unit> taken = records.take(entry); !taken.ok()) return taken;
    }
  }
  const Result<Unit> durable = (*journal)->sync();
  return durable.ok() ? (*journal)->seal() : durable;
}

/// The database of the history with what its log still holds.
void add_history(const Config& config, const std::string& data_dir, backup::BackupOptions& options) {
  const std::string path = config.history.path.empty() ? data_dir + "/" + kHistory : config.history.path;
  for (const char* suffix : {"", "-wal"}) {
    if (::access((path + suffix).c_str(), F_OK) == 0)
      options.history.push_back({.path = std::string(kHistory) + suffix, .file = path + suffix});
  }
}

/// A file that is gone with this object.
struct TemporaryFile {
  explicit TemporaryFile(std::string name) : path(std::move(name)) {}
  ~TemporaryFile() { ::unlink(path.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string path;
};

std::string others_of(const ReplicaGroup& group) {
  std::string text;
  for (const auto& [id, store] : group.stores) {
    if (id != group.id) text += (text.empty() ? "" : ", ") + std::to_string(id);
  }
  return text;
}

/// Refuses an ordinary backup.
Result<Unit> check_is_export(const std::string& file) {
  const Result<std::map<std::string, backup::Member>> members = backup::list_members(file);
  if (!members.ok()) return members.error();
  if (members->contains(replica_group_file(""))) return Unit{};
  return invalid(file + " is no file of gpu-scheduler members export");
}

Result<ReplicaGroup> finish_joining(const Config& config, const std::string& data_dir) {
  const ActingAsOwner acting(data_dir);
  Result<ReplicaGroup> group = read_replica_group(data_dir);
  if (!group.ok()) return group;
  if (config.replica.id != 0 && static_cast<uint64_t>(config.replica.id) != group->id)
    return invalid("the file is for replica " + std::to_string(group->id) + ", and replica.id is " +
                   std::to_string(config.replica.id) + "; take the file that was exported for this one");
  if (const Result<Unit> done = make_replica(*group, data_dir); !done.ok()) return done.error();
  return group;
}

}  // namespace

Result<Unit> check_alone(const Config&, const std::string& data_dir) { return check_folder_alone(data_dir); }

Result<ReplicaGroup> begin_group(const Config& config, const std::string& data_dir) {
  const Result<std::vector<ReplicaPeer>> peers = replica_peers(config);
  if (!peers.ok()) return peers.error();
  if (peers->empty())
    return invalid(
        "replica.peers is empty: write replica.id and replica.peers into the configuration file, and name it "
        "with --config");
  const ActingAsOwner acting(data_dir);
  const Result<std::unique_ptr<DiskLock>> lock = lock_folder(data_dir);
  if (!lock.ok()) return lock.error();
  if (has_replica_log(data_dir))
    return Error{.code = ErrorCode::kAlreadyExists,
                 .message = data_dir + " is a replica's data folder already; nothing was changed"};
  const Result<JournalScan> scan = inspect_journal(posix_disk(), data_dir + "/journal", {});
  if (!scan.ok()) return scan.error();
  ReplicaGroup group{.cluster = random_number(),
                     .id = static_cast<uint64_t>(config.replica.id),
                     .term = static_cast<uint64_t>(std::time(nullptr)),
                     .position = scan->segments.empty() ? 0 : scan->segments.back().scan.last_position};
  for (const ReplicaPeer& peer : *peers) group.stores[peer.id] = random_number();
  if (const Result<Unit> made = make_secrets(data_dir); !made.ok()) return made.error();
  if (::mkdir((data_dir + "/replica").c_str(), 0700) != 0 && errno != EEXIST)
    return sign::file_error("make", data_dir + "/replica");
  Result<Unit> done = sign::write_whole(replica_group_file(data_dir), replica_group_text(group), 0600);
  if (done.ok()) done = make_replica(group, data_dir);
  if (!done.ok()) return done.error();
  return group;
}

Result<Unit> leave_group(const std::string& data_dir) {
  const ActingAsOwner acting(data_dir);
  if (!has_replica_log(data_dir))
    return Error{
        .code = ErrorCode::kNotFound,
        .message = data_dir + " is the data folder of none of several schedulers; leave --again out"};
  if (const Result<Unit> carried = carry_over(data_dir); !carried.ok()) return carried;
  std::error_code failed;
  std::filesystem::remove_all(data_dir + "/replica", failed);
  if (failed)
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot remove " + data_dir + "/replica: " + failed.message()};
  return posix_disk().sync_dir(data_dir);
}

Result<backup::Summary> export_replica(const Config& config, const std::string& data_dir, uint64_t id,
                                       const std::string& file, const backup::BackupOptions& given) {
  if (!file.ends_with(".tar")) return invalid(file + " must be named *.tar, such as replica-2.tar");
  const Result<std::unique_ptr<DiskLock>> lock = lock_folder(data_dir);
  if (!lock.ok()) return lock.error();
  Result<ReplicaGroup> group = read_replica_group(data_dir);
  if (!group.ok() && group.error().code == ErrorCode::kNotFound)
    return invalid(data_dir +
                   " is the data folder of none of several schedulers: run gpu-scheduler members "
                   "init first");
  if (!group.ok()) return group.error();
  if (!group->stores.contains(id) || id == group->id)
    return invalid("replica " + std::to_string(id) + " is none of the others of this cluster, which are " +
                   others_of(*group));
  const Result<bool> decided = has_decided(data_dir);
  if (!decided.ok()) return decided.error();
  if (*decided)
    return Error{.code = ErrorCode::kUnavailable,
                 .message =
                     "the cluster has run since gpu-scheduler members init, and a copy of one folder no "
                     "longer begins like the others: see \"A replica is lost\" in "
                     "docs/operate/high-availability.md"};
  group->id = id;
  const TemporaryFile described(file + ".group");
  if (const Result<Unit> put = sign::write_whole(described.path, replica_group_text(*group), 0600); !put.ok())
    return put.error();
  backup::BackupOptions options = given;
  options.data_dir = data_dir;
  options.destination = file;
  add_history(config, data_dir, options);
  options.history.push_back({.path = replica_group_file(""), .file = described.path});
  return backup::make_backup(options);
}

Result<ReplicaGroup> join_group(const Config& config, const std::string& file, const std::string& data_dir) {
  if (const Result<Unit> sound = check_is_export(file); !sound.ok()) return sound.error();
  const Result<backup::Summary> made = backup::restore_backup(file, data_dir, {});
  if (!made.ok()) return made.error();
  const Result<ReplicaGroup> group = finish_joining(config, data_dir);
  std::error_code ignored;
  if (!group.ok()) {
    // Nothing is left behind, so that the same can be tried again.
    for (const auto& entry : std::filesystem::directory_iterator(data_dir, ignored))
      std::filesystem::remove_all(entry.path(), ignored);
    return group.error();
  }
  ::unlink(file.c_str());
  return *group;
}

}  // namespace gpusched
