#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "journal/disk.h"

namespace gpusched {

inline constexpr uint32_t kSnapshotFormatVersion = 1;

/// What a snapshot stands for.
struct SnapshotInfo {
  uint64_t last_sequence = 0;  ///< Of the last command that is in it.
  uint64_t last_position = 0;  ///< Of the last journal record that is in it: replay goes on with the next.
  uint64_t state_digest = 0;   ///< Of the whole state.
  uint64_t content_bytes = 0;  ///< Set by the writer.
  uint64_t store_id =
      0;  ///< Of the journal that it belongs to, set by the store; 0: written before there was one.
};

/// Receives one snapshot's bytes. Nothing is visible to readers before `commit` returned; without it the
/// destructor removes what was written. Not thread-safe, but may live on another thread than the store.
/// Errors: kStorageFull or kIo; the journal and the older snapshots are untouched by them.
class SnapshotWriter {
 public:
  SnapshotWriter(Disk& disk, std::string dir, const SnapshotInfo& info, std::unique_ptr<DiskFile> file,
                 std::string temporary);
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  Result<Unit> write(std::string_view bytes);
  /// For a digest that is known only when the last byte is written.
  void set_state_digest(uint64_t digest) { info_.state_digest = digest; }
  /// Makes the snapshot durable and visible. Once.
  Result<Unit> commit();

 private:
  Result<Unit> flush_chunk();

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

/// A whole snapshot whose every byte was checked.
struct Snapshot {
  SnapshotInfo info;
  std::string path;
  std::unique_ptr<DiskMapping> mapping;
  /// The content; valid as long as this lives.
  std::string_view content() const;
};

/// The newest usable snapshot and the ones that were not.
struct LatestSnapshot {
  std::optional<Snapshot> snapshot;
  std::vector<std::string> damaged;  ///< One sentence each; worth a line in the log.
};

/// The snapshots in one folder: the newest two are kept. Not thread-safe.
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
  /// The newest snapshot that is whole; older ones are tried when it is not. No snapshot at all is no error.
  /// kCorrupt: there are some, none is whole, or one belongs to another journal. kVersion: the newest is of a
  /// newer format.
  Result<LatestSnapshot> latest();
  /// Removes all but the newest two; damaged ones that `latest` met go first. Call it after a commit.
  Result<Unit> prune();
  /// The journal may forget records up to this position: even the older of the two whole snapshots has them.
  /// 0 while there are fewer than two.
  Result<uint64_t> compactable_position();

 private:
  SnapshotStore(Disk& disk, std::string dir, uint64_t store_id)
      : disk_(disk), dir_(std::move(dir)), store_id_(store_id) {}
  Result<Unit> check_store(const std::string& name) const;
  /// Names of snapshots, newest first.
  Result<std::vector<std::string>> names() const;
  bool is_damaged(const std::string& name) const;

  Disk& disk_;
  const std::string dir_;
  const uint64_t store_id_;
  std::vector<std::string> damaged_names_;
};

/// Reads one snapshot and checks every byte. Untrusted bytes. kCorrupt, kVersion, kNotFound, kIo.
Result<Snapshot> read_snapshot(Disk& disk, const std::string& path);
/// The pure part: checks the bytes of a whole file. kCorrupt, kVersion.
Result<SnapshotInfo> parse_snapshot(std::string_view bytes);

}  // namespace gpusched
