#include "journal/segment_scan.h"

#include <algorithm>

namespace gpusched {
namespace {

RecordPlace place_of(const SegmentHeader& header, uint64_t offset) {
  return {.store_id = header.store_id, .segment_index = header.index, .offset = offset};
}

/// Offset behind the last byte that is not zero, not before `from`.
uint64_t used_end_of(std::string_view segment, uint64_t from) {
  constexpr std::size_t kStep = 4096;
  std::size_t end = segment.size();
  while (end > from) {
    const std::size_t size = std::min<std::size_t>(kStep, end - from);
    if (!all_zero(segment.substr(end - size, size))) break;
    end -= size;
  }
  while (end > from && segment[end - 1] == 0) --end;
  return end;
}

bool chains(const StoredRecord& stored, const SegmentScan& scan) {
  return stored.kind == RecordKind::kGroup && stored.previous_crc == scan.chain &&
         stored.record.position == scan.last_position + 1 && stored.record.term >= scan.last_term &&
         stored.synced_position <= scan.last_position;
}

bool seals(const StoredRecord& stored, const SegmentScan& scan) {
  return stored.kind == RecordKind::kSeal && stored.previous_crc == scan.chain &&
         stored.record.position == scan.last_position;
}

/// Finds the proof that the bytes at `scan.end` were durable once: a whole record somewhere behind.
bool later_record_proves_damage(std::string_view segment, const SegmentHeader& header,
                                const SegmentScan& scan, std::string* reason) {
  const uint64_t bad_position = scan.last_position + 1;
  for (uint64_t at = scan.end + kRecordAlignment; at < scan.used_end; at += kRecordAlignment) {
    const auto later = parse_record(segment.substr(at), place_of(header, at));
    if (!later || later->synced_position < bad_position) continue;
    const bool seal = later->kind == RecordKind::kSeal;
    *reason = "record " + std::to_string(bad_position) + " is damaged: " +
              (seal ? "the journal was sealed behind it"
                    : "record " + std::to_string(later->record.position) + " at offset " +
                          std::to_string(at) + " was written after it was durable");
    return true;
  }
  return false;
}

void judge_tail(std::string_view segment, const SegmentHeader& header, SegmentScan& scan) {
  scan.used_end = used_end_of(segment, scan.end);
  if (scan.used_end == scan.end) return;
  const auto here = parse_record(segment.substr(scan.end), place_of(header, scan.end));
  if (here && seals(*here, scan)) {
    const bool clean = scan.used_end <= scan.end + here->bytes;
    scan.tail = clean ? SegmentTail::kSealed : SegmentTail::kDamaged;
    if (!clean) scan.reason = "there are bytes behind the seal";
    return;
  }
  if (here) {
    scan.tail = SegmentTail::kDamaged;
    scan.reason =
        "a whole record stands here that does not follow record " + std::to_string(scan.last_position);
    return;
  }
  if (later_record_proves_damage(segment, header, scan, &scan.reason)) {
    scan.tail = SegmentTail::kDamaged;
    return;
  }
  scan.tail = SegmentTail::kTorn;
  scan.reason = "the write of record " + std::to_string(scan.last_position + 1) + " was not finished";
}

}  // namespace

Result<SegmentScan> scan_segment(std::string_view segment, const SegmentHeader& header,
                                 const StoredVisitor& visit, uint64_t position_limit) {
  SegmentScan scan;
  scan.last_position = header.first_position - 1;
  scan.last_term = header.last_term;
  scan.chain = header.chain;
  scan.end = std::min<uint64_t>(kSegmentHeaderBytes, segment.size());
  while (scan.last_position < position_limit) {
    const auto stored = parse_record(segment.substr(scan.end), place_of(header, scan.end));
    if (!stored || !chains(*stored, scan)) break;
    if (visit) {
      const Result<Unit> visited = visit(*stored, scan.end);
      if (!visited) return visited.error();
    }
    scan.records += 1;
    scan.last_position = stored->record.position;
    scan.last_term = stored->record.term;
    scan.chain = stored->crc;
    scan.end += stored->bytes;
  }
  if (scan.last_position >= position_limit) {
    scan.used_end = used_end_of(segment, scan.end);
    return scan;
  }
  judge_tail(segment, header, scan);
  return scan;
}

}  // namespace gpusched
