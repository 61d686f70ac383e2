#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backup/backup.h"
#include "backup/container.h"
#include "backup/transfer.h"
#include "journal/journal_inspect.h"

namespace gpusched::backup {
namespace {

/// kLocked, kAlreadyExists: not a folder that may be replaced. Nothing: it is not there, or the owner is this
/// user anyway.
Result<std::optional<Owner>> check_target(const std::string& data_dir) {
  struct stat status{};
  if (::lstat(data_dir.c_str(), &status) != 0) {
    return errno == ENOENT ? Result<std::optional<Owner>>(std::optional<Owner>())
                           : file_failed("cannot look at", data_dir);
  }
  if (!S_ISDIR(status.st_mode)) {
    return Error{.code = ErrorCode::kAlreadyExists,
                 .message = data_dir + " is there and no folder; give another name"};
  }
  std::error_code failed;
  const bool empty = std::filesystem::is_empty(data_dir, failed);
  if (failed) {
    return Error{.code = ErrorCode::kIo, .message = "cannot read " + data_dir + ": " + failed.message()};
  }
  if (empty) {
    const bool changes = ::geteuid() == 0 && status.st_uid != 0;
    return changes ? std::optional(Owner{.user = status.st_uid, .group = status.st_gid}) : std::nullopt;
  }
  if (read_version(posix_disk(), data_dir + "/journal").ok()) {
    const auto lock = posix_disk().lock(data_dir + "/journal/LOCK");
    if (!lock.ok() && lock.error().code == ErrorCode::kLocked) return lock.error();
  }
  return Error{.code = ErrorCode::kAlreadyExists,
               .message = data_dir + " is not empty: move it away, or restore to another folder"};
}

Result<Unit> copy_all(const std::map<std::string, Member>& members, const Manifest& manifest, Writer& writer,
                      const Progress& progress) {
  Meter meter(progress, summary_of(manifest).bytes);
  for (const ManifestFile& listed : manifest.files) {
    Result<Unit> done = writer.begin(listed.path, listed.bytes);
    if (done.ok()) {
      done = read_listed(members, listed, [&](std::string_view piece) {
        meter.add(piece.size());
        return writer.write(piece);
      });
    }
    if (done.ok()) done = writer.end();
    if (!done.ok()) return done;
  }
  return writer.complete();
}

}  // namespace

Result<Summary> restore_backup(const std::string& source, const std::string& data_dir,
                               const Progress& progress) {
  const Result<std::optional<Owner>> owner = check_target(data_dir);
  if (!owner.ok()) return owner.error();
  const Result<Manifest> manifest = verify(source);
  if (!manifest.ok()) return manifest.error();
  const Result<std::map<std::string, Member>> members = list_members(source);
  if (!members.ok()) return members.error();
  Result<std::unique_ptr<Writer>> writer = write_folder(data_dir, *owner);
  if (!writer.ok()) return writer.error();
  Result<Unit> done = copy_all(*members, *manifest, **writer, progress);
  if (!done.ok()) return done.error();
  const Result<JournalScan> scan = inspect_journal(posix_disk(), (*writer)->staged() + "/journal", {});
  if (!scan.ok()) return scan.error();
  done = (*writer)->finish();
  if (!done.ok()) return done.error();
  return summary_of(*manifest);
}

}  // namespace gpusched::backup
