#include "host/core/decoded_records.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "journal/memory_journal.h"

namespace gpusched {
namespace {

class DecodedRecords : public ::testing::TestWithParam<Threads> {
 protected:
  /// Each with one submission whose specification has so many bytes.
  void append(int records, std::size_t spec_bytes = 8) {
    GroupEncoder encoder;
    for (int i = 0; i < records; ++i) {
      encoder.begin(Time{} + seconds(1));
      SubmitJobs submit{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
      submit.jobs.push_back(JobRequest{.parts = {Part{}}, .spec = Blob(std::string(spec_bytes, 'x'))});
      encoder.add(submit);
      append_payload(encoder.payload());
    }
  }
  void append_payload(std::string_view payload) {
    CHECK(journal_
              .append({.position = journal_.last_position() + 1,
                       .term = 1,
                       .first_sequence = kFirstSequence + journal_.last_position(),
                       .command_count = 1,
                       .payload = payload})
              .ok());
    CHECK(journal_.sync().ok());
  }
  /// The positions that were visited; the visit of `stop` fails, 0: of none.
  Result<Unit> read(uint64_t from, uint64_t stop = 0) {
    positions_.clear();
    return read_decoded(journal_, from, GetParam(), [&](DecodedRecord& record) -> Result<Unit> {
      positions_.push_back(record.position);
      EXPECT_EQ(record.first_sequence, kFirstSequence + record.position - 1);
      if (!record.group) return record.group.error();
      EXPECT_EQ(record.group->commands.size(), 1U);
      if (record.position == stop) return Error{.code = ErrorCode::kTimeout, .message = "stopped"};
      return Unit{};
    });
  }

  MemoryJournal journal_;
  std::vector<uint64_t> positions_;
};

TEST_P(DecodedRecords, ComeInOrder) {
  append(50);
  ASSERT_TRUE(read(48).ok());
  EXPECT_EQ(positions_, (std::vector<uint64_t>{48, 49, 50}));
  ASSERT_TRUE(read(1).ok());
  EXPECT_EQ(positions_.size(), 50U);
  ASSERT_TRUE(read(51).ok());
  EXPECT_TRUE(positions_.empty());
}

TEST_P(DecodedRecords, StopAtTheVisitorsFirstError) {
  append(30, 1'000'000);  // More than may wait.
  const Result<Unit> done = read(1, 2);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(positions_, (std::vector<uint64_t>{1, 2}));
}

TEST_P(DecodedRecords, TellOfBytesThatAreNoCommandsInTheirTurn) {
  append(3);
  append_payload("none");
  append(1);
  const Result<Unit> done = read(1);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(positions_, (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST_P(DecodedRecords, EndWithTheJournalsOwnError) {
  append(3);
  ASSERT_TRUE(journal_.compact_before(3).ok());
  ASSERT_EQ(journal_.first_position(), 3U);
  EXPECT_EQ(read(1).error().code, ErrorCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Threads, DecodedRecords, ::testing::Values(Threads::kOne, Threads::kTwo));

}  // namespace
}  // namespace gpusched
