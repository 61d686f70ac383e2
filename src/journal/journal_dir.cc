#include "journal/journal_dir.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "journal/spare_segments.h"

namespace gpusched {
namespace {

constexpr uint64_t kVersionBytesMax = 4096;
constexpr uint64_t kTruncateMagic = 0x54414E5552544A47ULL;
constexpr uint64_t kCompactMagic = 0x4341504D4F434A47ULL;
constexpr uint64_t kReachedMagic = 0x4448434145524A47ULL;
constexpr uint64_t kSegmentFileBytesMax = uint64_t{1} << 32;

/// A file named like a segment, its header read.
struct Candidate {
  PreparedSegment file;
  ParsedSegmentHeader parsed;
  std::optional<Error> unreadable = std::nullopt;  ///< Matters only when the segment is needed.
};

Result<Unit> read_header(Disk& disk, Candidate& candidate) {
  Result<std::unique_ptr<DiskFile>> file = disk.open(candidate.file.path, DiskOpen::kRead);
  if (!file) return file.error();
  const Result<uint64_t> size = (*file)->size();
  if (!size) return size.error();
  candidate.file.bytes = *size;
  if (*size < kSegmentBytesMin || *size > kSegmentFileBytesMax) {
    return damage(candidate.file.path, 0, "the file has " + std::to_string(*size) + " bytes");
  }
  std::string block(kSegmentHeaderBytes, '\0');
  const Result<Unit> read = read_exact(**file, 0, block.data(), block.size());
  if (!read) return read.error();
  candidate.parsed = parse_segment_header(block);
  return Unit{};
}

Result<std::vector<Candidate>> read_headers(Disk& disk, const std::string& dir) {
  Result<std::vector<std::string>> names = disk.list(dir);
  if (!names) return names.error();
  std::vector<Candidate> candidates;
  for (const std::string& name : *names) {
    const std::optional<uint64_t> index = parse_segment_name(name);
    if (!index) continue;
    Candidate candidate{.file = {.index = *index, .path = dir + "/" + name, .bytes = 0}, .parsed = {}};
    const Result<Unit> read = read_header(disk, candidate);
    if (!read) candidate.unreadable = read.error();
    candidates.push_back(std::move(candidate));
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.file.index < b.file.index; });
  return candidates;
}

/// Does what a header alone can show: the store, the name, the size.
Result<Unit> check_header(const Candidate& candidate, uint64_t store_id) {
  const SegmentHeader& header = candidate.parsed.header;
  const std::string& path = candidate.file.path;
  if (candidate.parsed.state == HeaderState::kNewer) {
    return Error{.code = ErrorCode::kVersion,
                 .message = path + " was written by a newer version: start that version with this folder"};
  }
  if (header.store_id != store_id) return damage(path, 0, "the segment belongs to another journal");
  if (header.index != candidate.file.index) {
    return damage(path, 0, "the file was renamed: it is segment " + segment_name(header.index));
  }
  if (header.segment_bytes != candidate.file.bytes) {
    return damage(path, candidate.file.bytes,
                  "the file should have " + std::to_string(header.segment_bytes) + " bytes");
  }
  return Unit{};
}

class Scanner {
 public:
  Scanner(Disk& disk, std::string dir, const StoredVisitor& visit, uint64_t needed_from)
      : disk_(disk), dir_(std::move(dir)), visit_(visit), needed_from_(needed_from) {}

  Result<JournalScan> run() {
    const Result<JournalVersion> version = read_version(disk_, dir_);
    if (!version) return version.error();
    scan_.store_id = version->store_id;
    // Before all else: a scheduler that goes on meanwhile is beyond it then.
    const Result<ReachedMark> reached = read_reached_mark(disk_, dir_, scan_.store_id);
    if (!reached) return reached.error();
    // The headers are read before the records: a segment that has a follower by now is complete, so a
    // scheduler that goes on writing meanwhile does no harm.
    Result<std::vector<Candidate>> candidates = read_headers(disk_, dir_);
    if (!candidates) return candidates.error();
    const Result<std::optional<uint64_t>> mark = read_truncate_mark(disk_, dir_);
    if (!mark) return mark.error();
    scan_.truncate_after = *mark;
    const Result<CompactMark> compacted = read_compact_mark(disk_, dir_, scan_.store_id);
    if (!compacted) return compacted.error();
    scan_.compacted = *compacted;
    if (!candidates->empty()) scan_.next_index = candidates->back().file.index + 1;
    pass_over(*candidates);
    std::vector<Candidate> used;
    const Result<Unit> sorted = sort_out(*candidates, used);
    if (!sorted) return sorted.error();
    for (std::size_t i = 0; i < used.size(); ++i) {
      const Result<Unit> read = read_records(used[i], i + 1 == used.size());
      if (!read) return read.error();
    }
    const Result<Unit> complete = check_reached(*reached);
    if (!complete) return complete.error();
    if (!used.empty()) scan_.last_bytes = std::move(bytes_);
    return std::move(scan_);
  }

 private:
  /// Index of the segment in which record `position` is or would be; nothing before it is needed for that
  /// record and those behind it. 0: every segment may be.
  uint64_t index_of(const std::vector<Candidate>& candidates, uint64_t position) const {
    uint64_t index = 0;
    for (const Candidate& candidate : candidates) {
      const SegmentHeader& header = candidate.parsed.header;
      const bool counts = candidate.parsed.state == HeaderState::kValid &&
                          header.store_id == scan_.store_id && header.index == candidate.file.index &&
                          header.first_position <= position;
      if (counts) index = candidate.file.index;
    }
    return index;
  }

  /// Takes away the segments before what is needed, whatever they look like.
  void pass_over(std::vector<Candidate>& candidates) {
    const uint64_t given_up = index_of(candidates, scan_.compacted.position);
    const uint64_t first = std::max(given_up, index_of(candidates, needed_from_));
    for (const Candidate& candidate : candidates) {
      if (candidate.file.index < given_up) {
        scan_.stale.push_back(candidate.file.path);
      } else if (candidate.file.index < first) {
        scan_.unneeded.push_back(candidate.file.path);
      }
    }
    std::erase_if(candidates, [first](const Candidate& each) { return each.file.index < first; });
  }

  /// Tells segments in use from prepared ones and from those that a truncation leaves behind.
  Result<Unit> sort_out(const std::vector<Candidate>& candidates, std::vector<Candidate>& used) {
    for (const Candidate& candidate : candidates) {
      if (candidate.unreadable) return *candidate.unreadable;
      switch (candidate.parsed.state) {
        case HeaderState::kZero:
          scan_.prepared.push_back(candidate.file);
          continue;
        case HeaderState::kBad: {
          const Result<Unit> torn = take_torn_header(candidate);
          if (!torn) return torn;
          continue;
        }
        case HeaderState::kValid:
        case HeaderState::kNewer:
          break;
      }
      const Result<Unit> checked = check_header(candidate, scan_.store_id);
      if (!checked) return checked;
      if (scan_.truncate_after && !used.empty() &&
          candidate.parsed.header.first_position > *scan_.truncate_after) {
        scan_.voided.push_back(candidate.file.path);
        continue;
      }
      used.push_back(candidate);
    }
    const uint64_t last_used = used.empty() ? 0 : used.back().file.index;
    if (scan_.torn && scan_.torn->index < last_used) {
      return damage(scan_.torn->path, 0, "the segment's header is damaged");
    }
    for (const PreparedSegment& prepared : scan_.prepared) {
      const Result<Unit> checked = check_prepared(prepared);
      if (!checked) return checked;
    }
    return pass_by(used);
  }

  /// A prepared segment before the last one in use was passed by, as one of another size that could not be
  /// removed; or it was in use and was wiped, and then records are missing between its neighbours.
  Result<Unit> pass_by(const std::vector<Candidate>& used) {
    if (used.empty() && (scan_.compacted.position > 1 || scan_.truncate_after.value_or(0) > 0)) {
      return damage(dir_, 0, "records were written, but no segment contains any");
    }
    if (used.empty()) return Unit{};
    std::vector<PreparedSegment> ahead;
    for (PreparedSegment& prepared : scan_.prepared) {
      const bool before_all = prepared.index < used.front().file.index;
      if (before_all && used.front().parsed.header.first_position > 1) return wiped(prepared);
      if (prepared.index > used.back().file.index) {
        ahead.push_back(std::move(prepared));
        continue;
      }
      scan_.stale.push_back(prepared.path);
      passed_by_.push_back(std::move(prepared));
    }
    scan_.prepared = std::move(ahead);
    return Unit{};
  }

  static Error wiped(const PreparedSegment& prepared) {
    return damage(prepared.path, 0, "a later segment is in use, but this one contains only zero bytes");
  }

  /// A header whose write was not finished has nothing behind it: it is synced before the first record.
  Result<Unit> take_torn_header(const Candidate& candidate) {
    const Result<Unit> read = read_segment(disk_, candidate.file.path, bytes_);
    if (!read) return read;
    if (parse_segment_header(bytes_).state != HeaderState::kBad) return readings_differ(candidate.file.path);
    const bool rest_is_zero = all_zero(std::string_view(bytes_).substr(kSegmentHeaderBytes));
    if (!rest_is_zero || scan_.torn) return damage(candidate.file.path, 0, "the segment's header is damaged");
    scan_.torn = candidate.file;
    return Unit{};
  }

  Result<Unit> check_prepared(const PreparedSegment& prepared) {
    const Result<Unit> read = read_segment(disk_, prepared.path, bytes_);
    if (!read) return read;
    if (all_zero(bytes_)) return Unit{};
    // A scheduler that is running may have taken it since its header was read.
    if (!all_zero(std::string_view(bytes_).substr(0, kSegmentHeaderBytes))) {
      return Error{.code = ErrorCode::kNotFound,
                   .message = prepared.path + " was taken into use in the meantime"};
    }
    return damage(prepared.path, 0, "the segment's header was overwritten by zero bytes");
  }

  /// The error for two segments that do not fit together.
  Error missing(const ScannedSegment& before, const Candidate& next) const {
    for (const PreparedSegment& prepared : passed_by_) {
      if (before.header.index < prepared.index && prepared.index < next.file.index) return wiped(prepared);
    }
    return damage(before.path, before.scan.end,
                  "records are missing or damaged: the next segment continues with record " +
                      std::to_string(next.parsed.header.first_position));
  }

  Result<Unit> read_records(const Candidate& candidate, bool last) {
    const Result<Unit> loaded = read_segment(disk_, candidate.file.path, bytes_);
    if (!loaded) return loaded;
    const SegmentHeader& header = candidate.parsed.header;
    const ParsedSegmentHeader again = parse_segment_header(bytes_);
    if (again.state != HeaderState::kValid || again.header != header)
      return readings_differ(candidate.file.path);
    if (!scan_.segments.empty()) {
      const ScannedSegment& before = scan_.segments.back();
      if (before.scan.last_position + 1 != header.first_position || before.scan.chain != header.chain) {
        return missing(before, candidate);
      }
    }
    Result<SegmentScan> scanned =
        scan_segment(bytes_, header, visit_, scan_.truncate_after.value_or(UINT64_MAX));
    if (!scanned) return scanned.error();
    const bool wrong_tail = scanned->tail != SegmentTail::kClean && !last;
    if (scanned->tail == SegmentTail::kDamaged || wrong_tail) {
      return damage(
          candidate.file.path, scanned->end,
          scanned->reason.empty() ? "there is a seal, but the journal continues after it" : scanned->reason);
    }
    scan_.segments.push_back({.path = candidate.file.path, .header = header, .scan = std::move(*scanned)});
    return Unit{};
  }

  /// Compares with the mark: bytes behind a last segment's end cannot tell that there was more once.
  Result<Unit> check_reached(const ReachedMark& mark) const {
    if (scan_.truncate_after) return Unit{};
    if (mark.segment_index > (scan_.segments.empty() ? 0 : scan_.segments.back().header.index)) {
      return damage(dir_ + "/" + segment_name(mark.segment_index), 0,
                    "the segment was in use, but it is missing or its header was overwritten");
    }
    if (scan_.segments.empty()) return Unit{};
    const ScannedSegment& last = scan_.segments.back();
    if (last.scan.last_position >= mark.position) return Unit{};
    return damage(last.path, last.scan.end,
                  "records up to " + std::to_string(mark.position) +
                      " were durable, but the journal ends with record " +
                      std::to_string(last.scan.last_position));
  }

  Disk& disk_;
  const std::string dir_;
  const StoredVisitor& visit_;
  const uint64_t needed_from_;
  JournalScan scan_;
  std::vector<PreparedSegment> passed_by_;  ///< Segments of zero bytes between segments in use.
  std::string bytes_;
};

std::string encode_mark(const std::vector<uint64_t>& words) {
  std::string mark(kMarkBytes, '\0');
  const std::size_t size = words.size() * sizeof(uint64_t);
  std::memcpy(mark.data(), words.data(), size);
  const uint32_t crc = crc32c(mark.data(), size);
  std::memcpy(mark.data() + size, &crc, sizeof crc);
  return mark;
}

uint64_t word_of(std::string_view mark, std::size_t index) {
  uint64_t word = 0;
  std::memcpy(&word, mark.data() + index * sizeof word, sizeof word);
  return word;
}

}  // namespace

Error damage(const std::string& path, uint64_t offset, const std::string& reason) {
  return {
      .code = ErrorCode::kCorrupt,
      .message = path + ", offset " + std::to_string(offset) + ": " + reason +
                 ". Nothing was changed. Keep a copy of this folder, check the disk, and restore the "
                 "folder from a backup; 'gpu-scheduler journal dump' shows the records before the damage"};
}

Error readings_differ(const std::string& path) {
  return {.code = ErrorCode::kIo,
          .message = "two readings of " + path +
                     " differ. Nothing was changed. Check the disk and the memory, and start again"};
}

std::string encode_version(const JournalVersion& version) {
  char text[96];
  std::snprintf(text, sizeof text, "gpusched-journal %" PRIu32 "\nstore %016" PRIx64 "\n", version.format,
                version.store_id);
  return text;
}

Result<JournalVersion> read_version(Disk& disk, const std::string& dir) {
  const std::string path = dir + "/" + kVersionName;
  const Result<std::string> text = read_file(disk, path, kVersionBytesMax);
  if (!text) return text.error();
  JournalVersion version;
  const int fields = std::sscanf(text->c_str(), "gpusched-journal %" SCNu32 " store %" SCNx64,
                                 &version.format, &version.store_id);
  if (fields >= 1 && version.format > kJournalFormatVersion) {
    return Error{.code = ErrorCode::kVersion,
                 .message = path + " says format " + std::to_string(version.format) +
                            ", but this program supports only up to " +
                            std::to_string(kJournalFormatVersion) +
                            ": start the newer version with this folder"};
  }
  if (fields != 2 || version.format == 0 || version.store_id == 0) {
    return Error{.code = ErrorCode::kCorrupt,
                 .message = path + " is unreadable: restore the folder from a backup"};
  }
  return version;
}

std::string encode_truncate_mark(std::optional<uint64_t> position) {
  if (!position) return std::string(kMarkBytes, '\0');
  return encode_mark({kTruncateMagic, *position});
}

Result<std::optional<uint64_t>> read_truncate_mark(Disk& disk, const std::string& dir) {
  const std::string path = dir + "/" + kTruncateName;
  const Result<std::string> mark = read_file(disk, path, kVersionBytesMax);
  if (!mark && mark.error().code == ErrorCode::kNotFound) return std::optional<uint64_t>();
  if (!mark) return mark.error();
  if (mark->size() < kMarkBytes || all_zero(*mark)) return std::optional<uint64_t>();
  const uint64_t position = word_of(*mark, 1);
  if (encode_truncate_mark(position) == *mark) return std::optional<uint64_t>(position);
  // To take a mark for none is to bring back what was truncated: it is read a second time.
  const Result<std::string> again = read_file(disk, path, kVersionBytesMax);
  if (!again) return again.error();
  if (*again != *mark) return readings_differ(path);
  return std::optional<uint64_t>();
}

std::string encode_compact_mark(uint64_t store_id, const CompactMark& mark) {
  return encode_mark({kCompactMagic, mark.position, mark.generation, store_id});
}

Result<CompactMark> read_compact_mark(Disk& disk, const std::string& dir, uint64_t store_id) {
  const Result<std::string> marks = read_file(disk, dir + "/" + kCompactName, kVersionBytesMax);
  if (!marks && marks.error().code == ErrorCode::kNotFound) return CompactMark{};
  if (!marks) return marks.error();
  CompactMark newest;
  for (std::size_t at = 0; at + kMarkBytes <= marks->size(); at += kMarkBytes) {
    const std::string_view sector = std::string_view(*marks).substr(at, kMarkBytes);
    const CompactMark mark{.position = word_of(sector, 1), .generation = word_of(sector, 2)};
    const bool whole = encode_compact_mark(store_id, mark) == sector;
    if (whole && compact_mark_offset(mark) == at && mark.generation > newest.generation) newest = mark;
  }
  return newest;
}

std::string encode_reached_mark(uint64_t store_id, const ReachedMark& mark) {
  return encode_mark({kReachedMagic, mark.position, mark.segment_index, store_id});
}

ReachedMark parse_reached_mark(std::string_view bytes, uint64_t store_id) {
  if (bytes.size() < kMarkBytes) return {};
  const ReachedMark mark{.position = word_of(bytes, 1), .segment_index = word_of(bytes, 2)};
  return encode_reached_mark(store_id, mark) == bytes ? mark : ReachedMark{};
}

Result<ReachedMark> read_reached_mark(Disk& disk, const std::string& dir, uint64_t store_id) {
  const Result<std::string> bytes = read_file(disk, dir + "/" + kReachedName, kVersionBytesMax);
  if (!bytes && bytes.error().code == ErrorCode::kNotFound) return ReachedMark{};
  if (!bytes) return bytes.error();
  return parse_reached_mark(*bytes, store_id);
}

Result<Unit> read_segment(Disk& disk, const std::string& path, std::string& bytes) {
  Result<std::unique_ptr<DiskFile>> file = disk.open(path, DiskOpen::kRead);
  if (!file) return file.error();
  const Result<uint64_t> size = (*file)->size();
  if (!size) return size.error();
  if (*size > kSegmentFileBytesMax) return damage(path, 0, "the file is far too large");
  bytes.resize(*size);
  const Result<Unit> read = read_exact(**file, 0, bytes.data(), bytes.size());
  if (!read && read.error().code == ErrorCode::kCorrupt) return damage(path, 0, read.error().message);
  return read;
}

Result<JournalScan> scan_journal(Disk& disk, const std::string& dir, const StoredVisitor& visit,
                                 uint64_t needed_from) {
  Result<JournalScan> scan = Scanner(disk, dir, visit, 0).run();
  if (scan || scan.error().code != ErrorCode::kCorrupt || needed_from == 0) return scan;
  Result<JournalScan> rest = Scanner(disk, dir, visit, needed_from).run();
  if (!rest) return scan;
  const std::string& message = scan.error().message;
  rest->passed_over = message.substr(0, message.find(". "));
  return rest;
}

}  // namespace gpusched
