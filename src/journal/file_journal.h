#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "journal/disk/disk.h"
#include "journal/journal.h"
#include "journal/journal_dir.h"
#include "journal/spare_segments.h"

namespace gpusched {

struct FileJournalOptions {
  /// Size of a new segment. Must hold the largest record that is appended.
  uint64_t segment_bytes = 16u << 20;
  /// Room for ends, cancels and releases that is kept when the disk is full; rounded up to whole segments.
  uint64_t reserve_bytes = 8u << 20;
  /// Prepare segments on a thread of the journal's own. Off: on the caller's, inside `append`.
  bool background = true;
  /// Interval of retries on a full disk.
  Duration retry = seconds(1);
  /// Null: the computer's own. Must outlive the journal.
  Disk* disk = nullptr;
  /// Id of a new journal; 0 draws one. For golden files.
  uint64_t store_id = 0;
  /// Records before this one are in a snapshot: what of them is missing or damaged does not matter. 0: all
  /// may be needed that were not compacted.
  uint64_t needed_from = 0;
};

/// Findings of opening a journal, for the log.
struct OpenReport {
  bool created = false;              ///< There was no journal before.
  bool sealed = false;               ///< The last shutdown was clean.
  bool truncation_finished = false;  ///< A truncation that a crash interrupted was completed.
  uint64_t first_position = 1;
  uint64_t last_position = 0;
  uint64_t last_term = 0;
  uint64_t segments = 0;
  uint64_t records = 0;
  /// A torn tail that was cut: its size, where it was, why. 0 bytes: none.
  uint64_t bytes_cut = 0;
  std::string segment;
  uint64_t offset = 0;
  std::string reason;
  /// Damage to records that are in a snapshot, for which the journal begins behind them; empty: none.
  std::string passed_over;
};

/// The journal of one node: zero-filled segment files in one folder, one `pwrite` and one `fdatasync` for
/// all that was appended between two syncs. The format is in docs/reference/journal-format.md.
///
/// Threads: as `Journal`. Once an append, sync, truncation or seal failed with kIo or kOutcomeUnknown, every
/// later call fails with kIo: the host ends the process. In the steady state append and sync allocate
/// nothing.
class FileJournal final : public Journal {
 public:
  /// Opens the journal in `dir` for writing, or makes a new one; the folder above must exist. Cuts a torn
  /// tail, takes off the seal, and writes again what no sync is known to have made durable: everything that
  /// it then holds is durable. kLocked: another process has it, named in the message. kVersion: of a newer
  /// format. kCorrupt: damage, with segment, offset and what to do; nothing was changed. kStorageFull: no
  /// room for a new journal's first segment.
  static Result<std::unique_ptr<FileJournal>> open(const std::string& dir, const FileJournalOptions& options);
  ~FileJournal() override;

  Result<Unit> append(const JournalRecord& record) override;
  Result<Unit> sync() override;
  /// Hands everything appended to the operating system, and makes nothing durable: who reads the files sees
  /// it, and the end of this process does not take it. For records that are durable elsewhere. Errors as
  /// `sync`.
  Result<Unit> write_out();
  /// kStorageFull: the next payload of so many bytes would find no room, although the reserve may be used.
  Result<Unit> check_room(std::size_t payload_bytes);
  Result<Unit> read_from(uint64_t position, const Visitor& visit) override;
  Result<Unit> truncate_after(uint64_t position) override;
  Result<Unit> compact_before(uint64_t position) override;
  Result<Unit> seal() override;
  uint64_t first_position() const override { return segments_.front().header.first_position; }
  uint64_t last_position() const override { return last_position_; }
  uint64_t last_term() const { return last_term_; }  ///< Term of the last record; 0 before the first.
  JournalSpace space() const override { return spares_->space(); }
  std::size_t payload_max() const override;

  /// The random number that tells this journal from every other one.
  uint64_t store_id() const { return store_id_; }
  const OpenReport& open_report() const { return report_; }
  /// Why only the reserve is left; empty when the space is open. Any thread may ask.
  std::string space_reason() const { return spares_->reason(); }
  /// Tries at once what is otherwise tried every `retry`: to make segments, so that the space opens again.
  void retry_space() { spares_->maintain(); }

 private:
  struct Segment {
    std::string path;
    SegmentHeader header;
    uint64_t end = kSegmentHeaderBytes;  ///< Offset behind the last record written to the file.
  };

  FileJournal(std::string dir, const FileJournalOptions& options, Disk& disk);
  Result<Unit> prepare_folder(uint64_t store_id);
  Result<Unit> make_folder();
  Result<Unit> open_mark(const char* name, std::size_t bytes, std::unique_ptr<DiskFile>& file);
  Result<Unit> open_late_mark(const char* name, std::size_t bytes, std::unique_ptr<DiskFile>& file,
                              const std::vector<std::string>& names);
  Result<Unit> recover();
  Result<JournalScan> scan_all();
  Result<Unit> settle_marks(const JournalScan& scan);
  Result<Unit> finish_truncation(JournalScan& scan);
  Result<Unit> reset_torn_header(JournalScan& scan);
  Result<Unit> settle_tail(JournalScan& scan);
  Result<Unit> adopt(const JournalScan& scan);
  Result<Unit> start_spares(JournalScan& scan);
  Result<Unit> open_current();
  Result<Unit> next_segment();
  Result<Unit> zero(DiskFile& file, uint64_t offset, uint64_t end);
  Result<Unit> write_truncate_mark(std::optional<uint64_t> position);
  Result<Unit> write_compact_mark(const CompactMark& mark);
  Result<Unit> write_reached_mark(const ReachedMark& mark);
  Result<Unit> note_reached();
  Result<Unit> give_up_before(uint64_t position);
  Result<Unit> cut_segments_after(uint64_t position);
  Result<Unit> read_buffered(uint64_t position, const Visitor& visit);
  char* room_for(std::size_t bytes);
  void put(const JournalRecord& record, RecordKind kind);
  Result<Unit> usable() const;
  Error fail(const Error& cause, ErrorCode code);

  const std::string dir_;
  const FileJournalOptions options_;
  Disk& disk_;
  OpenReport report_;
  std::unique_ptr<DiskLock> lock_;
  std::unique_ptr<DiskFile> truncate_mark_;  ///< Open since the start: no room is needed later.
  std::unique_ptr<DiskFile> compact_mark_;   ///< Null: there was no room for one.
  std::unique_ptr<DiskFile> reached_mark_;   ///< Null: there was no room for one.
  std::unique_ptr<SpareSegments> spares_;
  std::vector<Segment> segments_;  ///< Segments in use, in order; the last one is written to.
  std::unique_ptr<DiskFile> current_;
  std::vector<std::string> unneeded_;  ///< Files that go with the next compaction.
  CompactMark compacted_;              ///< The newest one that may stand on the disk.
  uint64_t store_id_ = 0;
  uint64_t last_position_ = 0;
  uint64_t synced_position_ = 0;
  uint64_t written_position_ = 0;  ///< Last record in a file, synced or not.
  bool unsynced_ = false;          ///< Bytes were written since the last sync.
  uint64_t last_term_ = 0;
  uint32_t chain_ = 0;
  std::vector<char> buffer_;  ///< Encoded records that are not written yet.
  std::size_t buffered_ = 0;  ///< Bytes of it in use.
  bool sealed_ = false;
  std::optional<Error> failure_;
};

}  // namespace gpusched
