#include "journal/record_format.h"

#include <gtest/gtest.h>

#include <string>

#include "journal/segment_scan.h"

namespace gpusched {
namespace {

constexpr RecordPlace kPlace{.store_id = 11, .segment_index = 3, .offset = 4096};

std::string encoded(std::string_view payload, const RecordPlace& place = kPlace) {
  const StoredRecord stored{
      .kind = RecordKind::kGroup,
      .record = {.position = 5, .term = 2, .first_sequence = 77, .command_count = 4, .payload = payload},
      .synced_position = 4,
      .previous_crc = 0x1234,
      .crc = 0,
      .bytes = 0};
  std::string bytes(record_bytes(payload.size()), '\xFF');
  encode_record(stored, place, bytes.data());
  return bytes;
}

TEST(RecordFormat, ARecordReadsBackAsItWasWritten) {
  const std::string bytes = encoded("eleven byte") + "what follows";
  const auto parsed = parse_record(bytes, kPlace);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->record.position, 5u);
  EXPECT_EQ(parsed->record.term, 2u);
  EXPECT_EQ(parsed->record.first_sequence, 77u);
  EXPECT_EQ(parsed->record.command_count, 4u);
  EXPECT_EQ(parsed->record.payload, "eleven byte");
  EXPECT_EQ(parsed->synced_position, 4u);
  EXPECT_EQ(parsed->previous_crc, 0x1234u);
  EXPECT_EQ(parsed->bytes, 72u);
}

TEST(RecordFormat, EveryFlippedBitIsFound) {
  const std::string whole = encoded("a payload of some length");
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(parse_record(bytes, kPlace).has_value()) << "bit " << bit;
  }
}

TEST(RecordFormat, ARecordThatIsCutShortIsNone) {
  const std::string whole = encoded("a payload of some length");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_record(std::string_view(whole).substr(0, size), kPlace).has_value());
  }
}

TEST(RecordFormat, BytesCopiedToAnotherPlaceAreNoRecord) {
  const std::string bytes = encoded("a job whose payload is a journal");
  EXPECT_FALSE(parse_record(bytes, {.store_id = 12, .segment_index = 3, .offset = 4096}).has_value());
  EXPECT_FALSE(parse_record(bytes, {.store_id = 11, .segment_index = 4, .offset = 4096}).has_value());
  EXPECT_FALSE(parse_record(bytes, {.store_id = 11, .segment_index = 3, .offset = 4104}).has_value());
}

TEST(RecordFormat, BytesAreFixedForever) {
  const std::string bytes = encoded("x");
  const unsigned char expected[] = {
      0x47, 0x50, 0x4A, 0x52, 1, 0, 1, 0,  // Magic, version, kind.
      5,    0,    0,    0,    0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0,    0,    0, 0,
      0,    0,    4,    0,    0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0,  0, 0x34, 0x12, 0, 0,
  };
  EXPECT_EQ(bytes.substr(0, sizeof expected),
            std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  EXPECT_EQ(bytes.substr(56), std::string("x\0\0\0\0\0\0\0", 8));
}

TEST(SegmentHeader, ReadsBackAsItWasWritten) {
  std::string block(kSegmentHeaderBytes, '\xFF');
  const SegmentHeader header{
      .store_id = 1, .index = 2, .first_position = 3, .segment_bytes = 16384, .last_term = 4, .chain = 5};
  encode_segment_header(header, block.data());
  const ParsedSegmentHeader parsed = parse_segment_header(block);
  EXPECT_EQ(parsed.state, HeaderState::kValid);
  EXPECT_EQ(parsed.header.store_id, 1u);
  EXPECT_EQ(parsed.header.index, 2u);
  EXPECT_EQ(parsed.header.first_position, 3u);
  EXPECT_EQ(parsed.header.segment_bytes, 16384u);
  EXPECT_EQ(parsed.header.last_term, 4u);
  EXPECT_EQ(parsed.header.chain, 5u);
}

TEST(SegmentHeader, ZeroBytesAreAPreparedSegmentAndAnyFlippedByteIsBad) {
  std::string block(kSegmentHeaderBytes, '\0');
  EXPECT_EQ(parse_segment_header(block).state, HeaderState::kZero);
  encode_segment_header({.store_id = 1, .index = 2, .first_position = 3, .segment_bytes = 16384},
                        block.data());
  for (std::size_t i = 0; i < block.size(); ++i) {
    std::string bytes = block;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x40);
    EXPECT_EQ(parse_segment_header(bytes).state, HeaderState::kBad) << i;
  }
}

TEST(AllZero, FindsTheOneByteThatIsNot) {
  std::string bytes(1000, '\0');
  EXPECT_TRUE(all_zero(bytes));
  EXPECT_TRUE(all_zero(""));
  for (const std::size_t at : {0u, 1u, 500u, 999u}) {
    std::string other = bytes;
    other[at] = 1;
    EXPECT_FALSE(all_zero(other));
  }
}

TEST(SegmentScan, AnySizeOfGarbageIsNoCrash) {
  const SegmentHeader header{.store_id = 1, .index = 1, .first_position = 1, .segment_bytes = 8192};
  for (std::size_t size = 0; size < 6000; size += 7) {
    const auto scan = scan_segment(std::string(size, 'G'), header, {});
    ASSERT_TRUE(scan.ok());
    EXPECT_EQ(scan->records, 0u);
  }
}

}  // namespace
}  // namespace gpusched
