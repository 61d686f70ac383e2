#include "journal/segment_scan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "journal/record_format.h"

namespace gpusched {
namespace {

constexpr SegmentHeader kHeader{
    .store_id = 7, .index = 3, .first_position = 10, .segment_bytes = 65'536, .last_term = 4, .chain = 99};

/// A segment whose records a test gives as it likes; each is whole, and continues the chain of CRCs.
class Segment {
 public:
  Segment() : bytes_(kHeader.segment_bytes, '\0') { encode_segment_header(kHeader, bytes_.data()); }

  void add(uint64_t position, uint64_t term, uint64_t synced_position) {
    const StoredRecord stored{.kind = RecordKind::kGroup,
                              .record = {.position = position,
                                         .term = term,
                                         .first_sequence = position,
                                         .command_count = 1,
                                         .payload = "payload"},
                              .synced_position = synced_position,
                              .previous_crc = chain_};
    chain_ = encode_record(stored, {.store_id = 7, .segment_index = 3, .offset = end_}, bytes_.data() + end_);
    end_ += record_bytes(stored.record.payload.size());
  }
  SegmentScan scan() const {
    const Result<SegmentScan> scanned = scan_segment(bytes_, kHeader, {});
    EXPECT_TRUE(scanned.ok());
    return *scanned;
  }

 private:
  std::string bytes_;
  uint64_t end_ = kSegmentHeaderBytes;
  uint32_t chain_ = kHeader.chain;
};

TEST(SegmentScan, FollowsPositionsAndTermsThatGoOn) {
  Segment segment;
  segment.add(10, 4, 0);
  segment.add(11, 4, 10);
  segment.add(12, 6, 11);
  const SegmentScan scan = segment.scan();
  EXPECT_EQ(scan.last_position, 12u);
  EXPECT_EQ(scan.last_term, 6u);
  EXPECT_NE(scan.tail, SegmentTail::kDamaged);
}

TEST(SegmentScan, ARecordOfAnEarlierTermFollowsNothing) {
  Segment segment;
  segment.add(10, 5, 0);
  segment.add(11, 4, 10);
  const SegmentScan scan = segment.scan();
  EXPECT_EQ(scan.last_position, 10u) << "whoever led then was followed by another";
  EXPECT_EQ(scan.tail, SegmentTail::kDamaged);
}

TEST(SegmentScan, TheFirstRecordIsOfNoEarlierTermThanTheSegmentBefore) {
  Segment segment;
  segment.add(10, 3, 9);
  EXPECT_EQ(segment.scan().last_position, 9u);
  EXPECT_EQ(segment.scan().tail, SegmentTail::kDamaged);
}

TEST(SegmentScan, ARecordThatSkipsOneFollowsNothing) {
  Segment segment;
  segment.add(10, 4, 9);
  segment.add(12, 4, 10);
  EXPECT_EQ(segment.scan().last_position, 10u);
  EXPECT_EQ(segment.scan().tail, SegmentTail::kDamaged);
}

}  // namespace
}  // namespace gpusched
