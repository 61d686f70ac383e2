#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "journal/record_format.h"

namespace gpusched {

/// Content after the last complete record of a segment.
enum class SegmentTail {
  kClean,    ///< Zero bytes: the normal end.
  kSealed,   ///< The mark of a clean shutdown, then zero bytes.
  kTorn,     ///< An unfinished write; nothing in it was ever acknowledged.
  kDamaged,  ///< Bytes that were durable have changed.
};

struct SegmentScan {
  uint64_t records = 0;
  uint64_t last_position = 0;  ///< `first_position - 1` when the segment holds none.
  uint64_t last_term = 0;
  uint32_t chain = 0;  ///< CRC of the last record, or the header's when there is none.
  /// Offset behind the last record that a later one proves durable; the header is durable before the first
  /// record. 0: nothing proves anything.
  uint64_t proven_end = 0;
  uint64_t end = 0;       ///< Offset behind the last whole record.
  uint64_t used_end = 0;  ///< Offset behind the last byte that is not zero; at least `end`.
  SegmentTail tail = SegmentTail::kClean;
  std::string reason;  ///< Why the tail is torn or damaged, a sentence without its full stop.
};

using StoredVisitor = std::function<Result<Unit>(const StoredRecord&, uint64_t offset)>;

/// Reads a whole segment that `header` starts. Pure; the bytes are untrusted. `visit` may be empty; its
/// first error ends the scan and is returned. Records behind `position_limit` are not looked at, and the
/// tail is then kClean whatever it holds.
///
/// A bad record is a torn write when nothing behind it proves that it was durable: each record carries the
/// position up to which all was synced when it was written, so a whole record behind the bad one with a
/// `synced_position` at or over the bad one's position means damage. So does one right behind the last whole
/// record that says that this one was durable before, and does not chain to it.
Result<SegmentScan> scan_segment(std::string_view segment, const SegmentHeader& header,
                                 const StoredVisitor& visit, uint64_t position_limit = UINT64_MAX);

}  // namespace gpusched
