#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "journal/disk/disk.h"

namespace gpusched {

inline constexpr uint32_t kSnapshotFormatVersion = 1;

/// Identity of a snapshot: the state that it holds.
struct SnapshotInfo {
  uint64_t last_sequence = 0;  ///< Sequence number of the last command in it.
  uint64_t last_position = 0;  ///< Position of the last journal record in it: replay continues with the next.
  uint64_t state_digest = 0;   ///< Digest of the whole state.
  uint64_t content_bytes = 0;  ///< Set by the writer.
  uint64_t store_id = 0;       ///< Id of the journal that it belongs to; set by the store. 0: unknown.

  friend bool operator==(const SnapshotInfo&, const SnapshotInfo&) = default;
};

/// A whole snapshot whose every byte was checked.
struct Snapshot {
  SnapshotInfo info;
  std::string path;
  std::unique_ptr<DiskMapping> mapping;
  /// The content; valid as long as this lives.
  std::string_view content() const;
};

/// Says whether a snapshot can be used: the journal room knows bytes only, its caller what they stand for.
/// kVersion: the snapshot is a newer program's. Any other error is a sentence that says what is wrong with
/// it.
using SnapshotJudge = std::function<Result<Unit>(const Snapshot&)>;

/// Receives one snapshot's bytes. Nothing is visible to readers before `SnapshotStore::commit` returned;
/// without it the destructor removes what was written. Not thread-safe, but may live on another thread than
/// the store. Errors: kStorageFull or kIo; the journal and the older snapshots are untouched by them.
class SnapshotWriter {
 public:
  SnapshotWriter(Disk& disk, std::string dir, const SnapshotInfo& info, std::unique_ptr<DiskFile> file,
                 std::string temporary);
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  Result<Unit> write(std::string_view bytes);
  /// Sets a digest that is known only when the last byte is written.
  void set_state_digest(uint64_t digest) { info_.state_digest = digest; }

 private:
  friend class SnapshotStore;
  Result<Unit> flush_chunk();
  /// Writes what is missing and syncs it.
  Result<Unit> finish();
  /// Reads the file back from the disk and has it judged.
  Result<Unit> prove(const SnapshotJudge& judge);
  Result<Unit> commit(const SnapshotJudge& judge);

  Disk& disk_;
  const std::string dir_;
  SnapshotInfo info_;
  std::unique_ptr<DiskFile> file_;
  const std::string temporary_;
  std::string chunk_;
  std::vector<uint32_t> chunk_crcs_;
  uint64_t offset_;
  uint64_t unsynced_bytes_ = 0;
  bool committed_ = false;
  std::optional<Error> failure_;
};

/// The newest usable snapshot and the ones that were not.
struct LatestSnapshot {
  std::optional<Snapshot> snapshot;
  std::vector<std::string> refused;  ///< One sentence for each newer one that cannot be used.
  uint64_t last_position = 0;        ///< Highest position that any of them has, by its name.
};

/// The snapshots in one folder. The newest two that are proven are kept, and what cannot be used is never
/// counted among them. A snapshot is proven when its bytes were read back from the disk and judged: by
/// `commit`, or by `latest`. Not thread-safe.
class SnapshotStore {
 public:
  /// Opens the folder for writing, makes it when missing (the folder above must exist), and removes what
  /// unfinished writers left. One process at a time: the journal's lock stands for both. `store_id`: of that
  /// journal; 0 looks at no snapshot's.
  static Result<std::unique_ptr<SnapshotStore>> open(const std::string& dir, Disk* disk = nullptr,
                                                     uint64_t store_id = 0);
  /// From which journal record on something may be needed to start from any of the snapshots in this folder,
  /// by their names alone; 0: all may be, and so it is when there is no such folder.
  static uint64_t needed_from(Disk& disk, const std::string& dir);

  /// Starts a snapshot. One writer at a time.
  Result<std::unique_ptr<SnapshotWriter>> begin(const SnapshotInfo& info);
  /// Syncs what was written, reads it back from the disk, has `judge` prove it, and only then makes it
  /// visible and durable. Once for each writer. An error of `judge`, or kCorrupt when other bytes came back:
  /// nothing became visible, and every older snapshot is as it was.
  Result<Unit> commit(SnapshotWriter& writer, const SnapshotJudge& judge);
  /// The newest snapshot that is whole and that `judge` (which may be empty) accepts; older ones are tried
  /// when it is not. None at all is no error. kVersion: the newest is of a newer program.
  /// kCorrupt: one belongs to another journal.
  Result<LatestSnapshot> latest(const SnapshotJudge& judge = {});
  /// Removes what the newest two proven ones make superfluous, and refused ones that a newer proven one
  /// replaces. Reads the older of the two again first: one that decayed is refused, and nothing is removed
  /// for its sake.
  Result<Unit> prune();
  /// The journal may forget records up to this position: even the older of the two proven snapshots has them.
  /// 0 while there are fewer than two.
  Result<uint64_t> compactable_position();

 private:
  SnapshotStore(Disk& disk, std::string dir, uint64_t store_id)
      : disk_(disk), dir_(std::move(dir)), store_id_(store_id) {}
  Result<Unit> check_store(const std::string& name) const;
  /// Names of snapshots, newest first.
  Result<std::vector<std::string>> names() const;

  Disk& disk_;
  const std::string dir_;
  const uint64_t store_id_;
  std::set<std::string> proven_;   ///< Names.
  std::set<std::string> refused_;  ///< Names.
};

/// Positions of the snapshots in a folder, by their names alone, oldest first; none when there is no such
/// folder.
std::vector<uint64_t> snapshot_positions(Disk& disk, const std::string& dir);
/// Returns the path of a position's snapshot in a folder.
std::string snapshot_path(const std::string& dir, uint64_t position);
/// Reads one snapshot and checks every byte. Untrusted bytes. kCorrupt, kVersion, kNotFound, kIo.
Result<Snapshot> read_snapshot(Disk& disk, const std::string& path);
/// The pure part: checks the bytes of a whole file. kCorrupt, kVersion.
Result<SnapshotInfo> parse_snapshot(std::string_view bytes);

}  // namespace gpusched
