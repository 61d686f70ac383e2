// rooms: journal base
//
// A segment of arbitrary bytes, and a segment of real records that is then damaged at arbitrary places. No
// input may crash the parser, make it invent a record, or lose one in silence.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "journal/record_format.h"
#include "journal/segment_scan.h"

namespace {

using namespace gpusched;  // NOLINT(google-build-using-namespace)

constexpr uint64_t kSegmentBytes = 16384;
constexpr SegmentHeader kHeader{.store_id = 9,
                                .index = 4,
                                .first_position = 21,
                                .segment_bytes = kSegmentBytes,
                                .last_term = 2,
                                .chain = 77};

/// Checks rules that hold for any bytes at all. Returns the payloads found.
std::vector<std::string> scan_anything(std::string_view segment, SegmentScan& scan) {
  std::vector<std::string> payloads;
  const auto visit = [&](const StoredRecord& stored, uint64_t offset) -> Result<Unit> {
    CHECK(offset >= kSegmentHeaderBytes);
    CHECK(offset + stored.bytes <= segment.size());
    CHECK(stored.record.position == kHeader.first_position + payloads.size());
    payloads.emplace_back(stored.record.payload);
    return Unit{};
  };
  Result<SegmentScan> result = scan_segment(segment, kHeader, visit);
  CHECK(result.ok());
  scan = *result;
  CHECK(scan.records == payloads.size());
  CHECK(scan.last_position + 1 == kHeader.first_position + payloads.size());
  CHECK(scan.end <= segment.size());
  CHECK(scan.used_end >= scan.end);
  CHECK(all_zero(segment.substr(scan.used_end)));
  const bool says_why = scan.tail == SegmentTail::kTorn || scan.tail == SegmentTail::kDamaged;
  CHECK(scan.reason.empty() != says_why);
  return payloads;
}

void arbitrary_bytes(std::string_view input) {
  SegmentScan scan;
  std::string segment(kSegmentHeaderBytes, '\0');
  segment += input;
  scan_anything(segment, scan);
  scan_anything(input, scan);
  (void)parse_segment_header(input);
  if (const auto parsed = parse_record(input, {})) {
    std::string again(parsed->bytes, '\0');
    CHECK(encode_record(*parsed, {}, again.data()) == parsed->crc);
    CHECK(again == input.substr(0, parsed->bytes));
  }
}

/// The input is a script: which records were written and synced together, whether there is a seal, and which
/// bytes changed afterwards.
void damaged_segment(ByteReader reader) {
  std::string segment(kSegmentBytes, '\0');
  std::vector<std::string> written;
  uint32_t chain = kHeader.chain;
  uint64_t end = kSegmentHeaderBytes;
  uint64_t synced = kHeader.first_position - 1;
  const auto put = [&](RecordKind kind, uint64_t position, std::string_view payload) {
    const StoredRecord stored{.kind = kind,
                              .record = {.position = position, .term = 3, .payload = payload},
                              .synced_position = synced,
                              .previous_crc = chain};
    const uint32_t crc =
        encode_record(stored, {.store_id = 9, .segment_index = 4, .offset = end}, segment.data() + end);
    end += record_bytes(payload.size());
    return crc;
  };
  const int records = reader.u8() % 12;
  for (int i = 0; i < records; ++i) {
    const std::string payload(reader.u8() * 3, static_cast<char>('a' + i));
    chain = put(RecordKind::kGroup, kHeader.first_position + written.size(), payload);
    written.push_back(payload);
    if ((reader.u8() & 1) == 0) synced = kHeader.first_position + written.size() - 1;
  }
  const uint64_t acknowledged = synced + 1 - kHeader.first_position;
  const bool sealed = (reader.u8() & 1) == 0 && acknowledged == written.size();
  if (sealed) put(RecordKind::kSeal, synced, {});
  bool changed = false;
  while (reader.remaining() >= 3) {
    const uint64_t at = kSegmentHeaderBytes + (reader.u8() | static_cast<uint64_t>(reader.u8()) << 8) %
                                                  (end - kSegmentHeaderBytes + 64);
    const auto byte = static_cast<char>(reader.u8());
    changed = changed || segment[at] != byte;
    segment[at] = byte;
  }
  SegmentScan scan;
  const std::vector<std::string> found = scan_anything(segment, scan);
  CHECK(found.size() <= written.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == written[i]);
  if (changed) return;
  CHECK(found.size() == written.size());
  CHECK(scan.tail == (sealed ? SegmentTail::kSealed : SegmentTail::kClean));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  if ((input.front() & 1) == 0) {
    arbitrary_bytes(input.substr(1));
  } else {
    damaged_segment(ByteReader(input.substr(1)));
  }
  return 0;
}
