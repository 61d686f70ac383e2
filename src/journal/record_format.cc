#include "journal/record_format.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "journal/raw_bytes.h"

namespace gpusched {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint32_t kRecordMagic = 0x524A5047;              // "GPJR"
constexpr uint64_t kSegmentMagic = 0x4745534C4E524A47ULL;  // "GJRNLSEG"
constexpr std::size_t kCrcAt = 52;                         // In a record's header.
constexpr std::size_t kSegmentHeaderUsed = 64;
constexpr std::size_t kSegmentCrcAt = 60;

uint32_t seed_of(const RecordPlace& place) {
  const std::array<uint64_t, 3> words = {place.store_id, place.segment_index, place.offset};
  return crc32c(words.data(), sizeof words);
}

/// The CRC covers the header up to its own field, then payload and padding.
uint32_t crc_of(const char* record, std::size_t bytes, const RecordPlace& place) {
  const uint32_t head = crc32c(record, kCrcAt, seed_of(place));
  return crc32c(record + kRecordHeaderBytes, bytes - kRecordHeaderBytes, head);
}

}  // namespace

uint32_t encode_record(const StoredRecord& stored, const RecordPlace& place, char* out) {
  const JournalRecord& record = stored.record;
  CHECK(record.payload.size() <= limits::kGroupBytesMax);
  const std::size_t bytes = record_bytes(record.payload.size());
  store<uint32_t>(out, 0, kRecordMagic);
  store<uint16_t>(out, 4, static_cast<uint16_t>(kJournalFormatVersion));
  store<uint16_t>(out, 6, static_cast<uint16_t>(stored.kind));
  store<uint64_t>(out, 8, record.position);
  store<uint64_t>(out, 16, record.term);
  store<uint64_t>(out, 24, record.first_sequence);
  store<uint64_t>(out, 32, stored.synced_position);
  store<uint32_t>(out, 40, record.command_count);
  store<uint32_t>(out, 44, static_cast<uint32_t>(record.payload.size()));
  store<uint32_t>(out, 48, stored.previous_crc);
  if (!record.payload.empty()) {
    std::memcpy(out + kRecordHeaderBytes, record.payload.data(), record.payload.size());
  }
  const std::size_t used = kRecordHeaderBytes + record.payload.size();
  std::memset(out + used, 0, bytes - used);
  const uint32_t crc = crc_of(out, bytes, place);
  store<uint32_t>(out, kCrcAt, crc);
  return crc;
}

std::optional<StoredRecord> parse_record(std::string_view bytes, const RecordPlace& place) {
  if (bytes.size() < kRecordHeaderBytes) return std::nullopt;
  if (load<uint32_t>(bytes, 0) != kRecordMagic) return std::nullopt;
  if (load<uint16_t>(bytes, 4) != kJournalFormatVersion) return std::nullopt;
  const auto kind = load<uint16_t>(bytes, 6);
  if (kind != static_cast<uint16_t>(RecordKind::kGroup) && kind != static_cast<uint16_t>(RecordKind::kSeal)) {
    return std::nullopt;
  }
  const auto length = load<uint32_t>(bytes, 44);
  if (length > limits::kGroupBytesMax) return std::nullopt;
  const std::size_t size = record_bytes(length);
  if (size > bytes.size()) return std::nullopt;
  const auto crc = load<uint32_t>(bytes, kCrcAt);
  if (crc != crc_of(bytes.data(), size, place)) return std::nullopt;
  StoredRecord stored;
  stored.kind = static_cast<RecordKind>(kind);
  stored.record.position = load<uint64_t>(bytes, 8);
  stored.record.term = load<uint64_t>(bytes, 16);
  stored.record.first_sequence = load<uint64_t>(bytes, 24);
  stored.record.command_count = load<uint32_t>(bytes, 40);
  stored.record.payload = bytes.substr(kRecordHeaderBytes, length);
  stored.synced_position = load<uint64_t>(bytes, 32);
  stored.previous_crc = load<uint32_t>(bytes, 48);
  stored.crc = crc;
  stored.bytes = size;
  return stored;
}

void encode_segment_header(const SegmentHeader& header, char* out) {
  std::memset(out, 0, kSegmentHeaderBytes);
  store<uint64_t>(out, 0, kSegmentMagic);
  store<uint32_t>(out, 8, kJournalFormatVersion);
  store<uint32_t>(out, 12, static_cast<uint32_t>(kSegmentHeaderBytes));
  store<uint64_t>(out, 16, header.store_id);
  store<uint64_t>(out, 24, header.index);
  store<uint64_t>(out, 32, header.first_position);
  store<uint64_t>(out, 40, header.segment_bytes);
  store<uint64_t>(out, 48, header.last_term);
  store<uint32_t>(out, 56, header.chain);
  store<uint32_t>(out, kSegmentCrcAt, crc32c(out, kSegmentCrcAt));
}

ParsedSegmentHeader parse_segment_header(std::string_view block) {
  if (block.size() < kSegmentHeaderBytes) return {};
  block = block.substr(0, kSegmentHeaderBytes);
  if (all_zero(block)) return {.state = HeaderState::kZero, .header = {}};
  if (load<uint64_t>(block, 0) != kSegmentMagic) return {};
  if (load<uint32_t>(block, kSegmentCrcAt) != crc32c(block.data(), kSegmentCrcAt)) return {};
  if (load<uint32_t>(block, 8) > kJournalFormatVersion) return {.state = HeaderState::kNewer, .header = {}};
  if (load<uint32_t>(block, 12) != kSegmentHeaderBytes) return {};
  if (!all_zero(block.substr(kSegmentHeaderUsed))) return {};
  ParsedSegmentHeader parsed;
  parsed.state = HeaderState::kValid;
  parsed.header.store_id = load<uint64_t>(block, 16);
  parsed.header.index = load<uint64_t>(block, 24);
  parsed.header.first_position = load<uint64_t>(block, 32);
  parsed.header.segment_bytes = load<uint64_t>(block, 40);
  parsed.header.last_term = load<uint64_t>(block, 48);
  parsed.header.chain = load<uint32_t>(block, 56);
  if (parsed.header.first_position == 0) return {};
  return parsed;
}

bool all_zero(std::string_view bytes) {
  if (bytes.empty()) return true;
  // Each byte equals the next and the first is zero: memcmp runs at memory speed.
  return bytes.front() == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace gpusched
