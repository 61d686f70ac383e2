#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "journal/journal.h"

/// The bytes of a segment, version 1. Pure: no I/O, and every function takes untrusted bytes. The layout is
/// in docs/reference/journal-format.md; all integers are little-endian.
namespace gpusched {

inline constexpr uint32_t kJournalFormatVersion = 1;
/// The header has a block of its own, so that no torn write of a record can reach it.
inline constexpr std::size_t kSegmentHeaderBytes = 4096;
inline constexpr std::size_t kRecordHeaderBytes = 56;
inline constexpr std::size_t kRecordAlignment = 8;
inline constexpr uint64_t kSegmentBytesMin = 2 * kSegmentHeaderBytes;

/// Header of a segment in use. A prepared segment is all zero bytes.
struct SegmentHeader {
  uint64_t store_id = 0;        ///< Id of the journal that the segment belongs to; drawn once.
  uint64_t index = 0;           ///< Index in the file's name. Increases, not always by one.
  uint64_t first_position = 0;  ///< Position of the first record of the segment.
  uint64_t segment_bytes = 0;   ///< The file's size.
  uint64_t last_term = 0;       ///< Term of the record before the first one; 0 when there was none.
  uint32_t chain = 0;           ///< CRC of the record before the first one; 0 when there was none.

  friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};

/// Place of a record. Part of the CRC, so that bytes copied from elsewhere never pass for a record.
struct RecordPlace {
  uint64_t store_id = 0;
  uint64_t segment_index = 0;
  uint64_t offset = 0;  ///< Bytes from the start of the segment.
};

enum class RecordKind : uint16_t {
  kGroup = 1,  ///< A record of the journal.
  kSeal = 2,   ///< The clean end; its position is that of the last record.
};

/// A record as it stands in a segment.
struct StoredRecord {
  RecordKind kind = RecordKind::kGroup;
  JournalRecord record;          ///< The payload points into the parsed bytes.
  uint64_t synced_position = 0;  ///< Every record up to this one was durable before this one was written.
  uint32_t previous_crc = 0;     ///< CRC of the previous record.
  uint32_t crc = 0;              ///< CRC of this header and payload.
  std::size_t bytes = 0;         ///< Size in the segment, padding included.
};

/// Bytes that a record with such a payload takes in a segment.
constexpr std::size_t record_bytes(std::size_t payload_bytes) {
  return (kRecordHeaderBytes + payload_bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

/// Writes `record` to `out`, which has room for `record_bytes(payload)`. Returns its CRC.
uint32_t encode_record(const StoredRecord& stored, const RecordPlace& place, char* out);
/// The record at the start of `bytes`, when it is whole and of this format; `bytes` may go on behind it.
/// Whether it chains to the record before is for the caller to compare.
std::optional<StoredRecord> parse_record(std::string_view bytes, const RecordPlace& place);

/// Writes a header's block, `kSegmentHeaderBytes` long.
void encode_segment_header(const SegmentHeader& header, char* out);
/// Result of reading the start of a segment.
enum class HeaderState {
  kValid,
  kZero,   ///< Prepared, not in use.
  kNewer,  ///< Whole, but of a newer format.
  kBad,
};
struct ParsedSegmentHeader {
  HeaderState state = HeaderState::kBad;
  SegmentHeader header;
};
ParsedSegmentHeader parse_segment_header(std::string_view block);

/// True when every byte is zero.
bool all_zero(std::string_view bytes);

}  // namespace gpusched
