#include "journal/segment_scan.h"

#include <algorithm>
#include <deque>
#include <utility>

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

/// Follows what is proven to be durable while the records go by.
class Proof {
 public:
  void add(const StoredRecord& stored, SegmentScan& scan) {
    if (scan.records == 0) scan.proven_end = kSegmentHeaderBytes;
    prove(stored.synced_position, scan);
    open_.emplace_back(stored.record.position, scan.end + stored.bytes);
  }
  void prove(uint64_t synced_position, SegmentScan& scan) {
    while (!open_.empty() && open_.front().first <= synced_position) {
      scan.proven_end = open_.front().second;
      open_.pop_front();
    }
  }

 private:
  std::deque<std::pair<uint64_t, uint64_t>> open_;  ///< Position and end of records that nothing proves yet.
};

/// Finds the proof that the bytes at `scan.end` were durable once: a whole record somewhere behind.
bool later_record_proves_damage(std::string_view segment, const SegmentHeader& header,
                                const SegmentScan& scan, std::string* reason) {
  const uint64_t bad_position = scan.last_position + 1;
  for (uint64_t at = scan.end + kRecordAlignment; at < scan.used_end; at += kRecordAlignment) {
    const auto later = parse_record(segment.substr(at), place_of(header, at));
    if (!later || later->synced_position < bad_position) continue;
    const bool seal = later->kind == RecordKind::kSeal;
    *reason = "record " + std::to_string(bad_position) + " is damaged: " +
              (seal ? "the journal was sealed after it"
                    : "record " + std::to_string(later->record.position) + " at offset " +
                          std::to_string(at) + " was overwritten after it was durable");
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
    if (!clean) scan.reason = "there are bytes after the seal";
    return;
  }
  // Unproven bytes may be the rest of an unfinished write that a later one has overwritten in part.
  if (here && here->synced_position >= std::max<uint64_t>(scan.last_position, 1)) {
    scan.tail = SegmentTail::kDamaged;
    scan.reason =
        "there is a complete record here that does not follow record " + std::to_string(scan.last_position);
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
  Proof proof;
  while (scan.last_position < position_limit) {
    const auto stored = parse_record(segment.substr(scan.end), place_of(header, scan.end));
    if (!stored || !chains(*stored, scan)) break;
    if (visit) {
      const Result<Unit> visited = visit(*stored, scan.end);
      if (!visited) return visited.error();
    }
    proof.add(*stored, scan);
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
  // A seal is written when everything before it is durable.
  if (scan.tail == SegmentTail::kSealed) {
    proof.prove(scan.last_position, scan);
    if (scan.records == 0) scan.proven_end = kSegmentHeaderBytes;
  }
  return scan;
}

}  // namespace gpusched
