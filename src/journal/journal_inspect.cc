#include "journal/journal_inspect.h"

#include "journal/snapshot_store.h"

namespace gpusched {
namespace {

/// A scheduler that writes and compacts meanwhile can spoil one reading; not so many in a row.
constexpr int kAttemptsMax = 8;

}  // namespace

std::string find_journal_dir(Disk& disk, const std::string& dir) {
  const std::string inner = dir + "/journal";
  const Result<JournalVersion> version = read_version(disk, inner);
  const bool there = version.ok() || version.error().code != ErrorCode::kNotFound;
  return there ? inner : dir;
}

Result<JournalScan> inspect_journal(Disk& disk, const std::string& dir, const StoredVisitor& visit) {
  uint64_t seen = 0;
  std::optional<Error> visit_error;
  const StoredVisitor once = [&](const StoredRecord& stored, uint64_t offset) -> Result<Unit> {
    if (stored.record.position <= seen) return Unit{};
    seen = stored.record.position;
    if (!visit) return Unit{};
    const Result<Unit> visited = visit(stored, offset);
    if (!visited) visit_error = visited.error();
    return visited;
  };
  Error before;
  for (int attempt = 1;; ++attempt) {
    const uint64_t needed_from = SnapshotStore::needed_from(disk, folder_above(dir) + "/snapshots");
    Result<JournalScan> scan = scan_journal(disk, dir, once, needed_from);
    if (scan) return scan;
    if (visit_error) return *visit_error;
    const ErrorCode code = scan.error().code;
    if (code != ErrorCode::kCorrupt && code != ErrorCode::kNotFound) return scan.error();
    // Damage stays where it is; a reading beside a writer fails at another place, or not again.
    if (scan.error().message == before.message || attempt == kAttemptsMax) return scan.error();
    before = scan.error();
  }
}

}  // namespace gpusched
