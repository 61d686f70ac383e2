#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "journal/disk/disk.h"
#include "journal/segment_scan.h"

/// A journal's folder: which files it has, and what they say together. docs/reference/journal-format.md
/// describes it.
namespace gpusched {

inline constexpr const char* kLockName = "LOCK";
inline constexpr const char* kVersionName = "VERSION";
inline constexpr const char* kTruncateName = "TRUNCATE";
inline constexpr const char* kCompactName = "COMPACT";
inline constexpr const char* kReachedName = "REACHED";
inline constexpr const char* kTemporarySuffix = ".tmp";

/// A segment in use and what a scan of it found.
struct ScannedSegment {
  std::string path;
  SegmentHeader header;
  SegmentScan scan;
};

/// A prepared file: zero bytes, not in use.
struct PreparedSegment {
  uint64_t index = 0;
  std::string path;
  uint64_t bytes = 0;
};

/// The mark of a truncation under way: one sector, overwritten in place. A mark that is not whole is none:
/// the truncation itself had not begun.
std::string encode_truncate_mark(std::optional<uint64_t> position);
Result<std::optional<uint64_t>> read_truncate_mark(Disk& disk, const std::string& dir);

/// The mark of what was compacted: records before `position` are not needed by anyone, whichever of their
/// segments are still there. Two sectors, overwritten in turns, so that a write that stops half-way leaves
/// the one before.
struct CompactMark {
  uint64_t position = 0;    ///< 0: nothing is known.
  uint64_t generation = 0;  ///< Counts the marks.
};
inline constexpr std::size_t kMarkBytes = 512;
inline constexpr std::size_t kCompactMarks = 2;
/// Offset of a mark in the file.
constexpr uint64_t compact_mark_offset(const CompactMark& mark) {
  return mark.generation % kCompactMarks * kMarkBytes;
}
std::string encode_compact_mark(uint64_t store_id, const CompactMark& mark);
Result<CompactMark> read_compact_mark(Disk& disk, const std::string& dir, uint64_t store_id);

/// The mark of how far the journal has come: a lower bound, so that an older one is no less true. Without it
/// nothing tells a last segment that was wiped or taken away from one that was never begun.
struct ReachedMark {
  uint64_t position = 0;       ///< Records up to here were durable.
  uint64_t segment_index = 0;  ///< The header of this segment was durable; 0: of none.
};
std::string encode_reached_mark(uint64_t store_id, const ReachedMark& mark);
/// One that is not whole says nothing.
ReachedMark parse_reached_mark(std::string_view bytes, uint64_t store_id);
/// One that is missing says nothing either.
Result<ReachedMark> read_reached_mark(Disk& disk, const std::string& dir, uint64_t store_id);

struct JournalScan {
  uint64_t store_id = 0;
  std::vector<ScannedSegment> segments;    ///< Segments in order; each continues where the one before ends.
  std::string last_bytes;                  ///< Bytes of the last segment in use, as read.
  std::vector<PreparedSegment> prepared;   ///< Prepared segments by index, each after the last one in use.
  std::optional<PreparedSegment> torn;     ///< A segment whose header's write was not finished.
  std::optional<uint64_t> truncate_after;  ///< A truncation that was begun and not finished.
  std::vector<std::string> voided;         ///< Segments that this truncation removes.
  CompactMark compacted;                   ///< Records before its position were given up for good.
  std::vector<std::string> stale;          ///< Files that hold nothing but given up records, or nothing.
  std::vector<std::string> unneeded;       ///< Files before `needed_from` that nobody gave up for good.
  std::string passed_over;                 ///< The damage for which `needed_from` was asked; empty: none.
  uint64_t next_index = 1;                 ///< Not used by any file.
};

/// Content of the folder's VERSION file.
struct JournalVersion {
  uint32_t format = 0;
  uint64_t store_id = 0;
};

std::string encode_version(const JournalVersion& version);
/// kNotFound: the folder has none. kVersion: of a newer format. kCorrupt: unreadable.
Result<JournalVersion> read_version(Disk& disk, const std::string& dir);

/// Reads every record, calls `visit` (which may be empty) for each, and compares everything with everything.
/// Changes nothing. kCorrupt: damage; the message names segment and offset, and says what to do. kNotFound: a
/// file went away meanwhile, or the folder is no journal. A torn tail of the last segment is no error.
///
/// Segments that lie wholly before the mark of compaction are not looked at: some of them may be gone or
/// damaged, as after a removal that failed. When what is left is damaged, those wholly before `needed_from`
/// are not looked at either; `visit` may have seen some of their records. A journal that ends before the mark
/// of how far it has come is damaged.
Result<JournalScan> scan_journal(Disk& disk, const std::string& dir, const StoredVisitor& visit,
                                 uint64_t needed_from = 0);

/// Reads one segment's whole file to `bytes`.
Result<Unit> read_segment(Disk& disk, const std::string& path, std::string& bytes);

/// The kIo error for a file that reads differently each time.
Error readings_differ(const std::string& path);
/// The kCorrupt error for a place in a segment.
Error damage(const std::string& path, uint64_t offset, const std::string& reason);

}  // namespace gpusched
