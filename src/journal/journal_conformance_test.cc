// One suite for every backend: what `Journal` promises, whatever stands behind it.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/prng.h"
#include "journal/disk/memory_disk.h"
#include "journal/file_journal.h"
#include "journal/memory_journal.h"

namespace gpusched {
namespace {

/// A backend with its world: it can be stopped, crashed and started again.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Journal& journal() = 0;
  virtual void restart() = 0;             ///< The process ends, then starts again.
  virtual void crash(uint64_t seed) = 0;  ///< The power goes, then everything starts again.
  virtual void fill_disk() = 0;           ///< From the next segment on there is no room.
  virtual void free_disk() = 0;
  virtual void break_sync() = 0;
};

class MemoryBackend final : public Backend {
 public:
  Journal& journal() override { return *journal_; }
  void restart() override { journal_ = std::make_unique<MemoryJournal>(journal_->durable()); }
  void crash(uint64_t seed) override {
    Prng prng(seed);
    journal_ = std::make_unique<MemoryJournal>(journal_->crash(prng));
  }
  void fill_disk() override { journal_->set_full(20'000); }
  void free_disk() override { journal_->set_open(); }
  void break_sync() override { journal_->fail_next_sync(); }

 private:
  std::unique_ptr<MemoryJournal> journal_ = std::make_unique<MemoryJournal>();
};

class FileBackend final : public Backend {
 public:
  FileBackend() { open(); }
  Journal& journal() override { return *journal_; }
  void restart() override {
    journal_.reset();
    open();
  }
  void crash(uint64_t seed) override {
    Prng prng(seed);
    std::unique_ptr<MemoryDisk> image = disk_->crash(prng);
    journal_.reset();
    disk_ = std::move(image);
    open();
  }
  void fill_disk() override { disk_->set_capacity(disk_->used()); }
  void free_disk() override {
    disk_->set_capacity(UINT64_MAX);
    journal_->retry_space();
  }
  void break_sync() override { disk_->fail(MemoryDisk::Call::kSync, ErrorCode::kIo); }

 private:
  void open() {
    auto opened = FileJournal::open("journal", {.segment_bytes = 16384,
                                                .reserve_bytes = 12000,
                                                .background = false,
                                                .disk = disk_.get(),
                                                .store_id = 7});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal_ = std::move(*opened);
  }
  std::unique_ptr<MemoryDisk> disk_ = std::make_unique<MemoryDisk>();
  std::unique_ptr<FileJournal> journal_;
};

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

class JournalConformance : public ::testing::TestWithParam<std::pair<const char*, MakeBackend>> {
 protected:
  Journal& journal() { return backend_->journal(); }
  static std::string payload_of(uint64_t position, std::size_t bytes = 100) {
    std::string payload = "record " + std::to_string(position) + " ";
    payload.resize(bytes, static_cast<char>('a' + position % 26));
    return payload;
  }
  Result<Unit> append(std::size_t bytes = 100) {
    const uint64_t position = journal().last_position() + 1;
    const std::string payload = payload_of(position, bytes);
    return journal().append({.position = position,
                             .term = 3,
                             .first_sequence = position * 10,
                             .command_count = 10,
                             .payload = payload});
  }
  void append_many(int count, std::size_t bytes = 100) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(append(bytes).ok());
      ASSERT_TRUE(journal().sync().ok());
    }
  }
  /// Positions from `from` on; every payload was compared.
  std::vector<uint64_t> read(uint64_t from, std::size_t bytes = 100) {
    std::vector<uint64_t> positions;
    const Result<Unit> done = journal().read_from(from, [&](const JournalRecord& record) -> Result<Unit> {
      EXPECT_EQ(record.payload, payload_of(record.position, bytes));
      EXPECT_EQ(record.term, 3u);
      EXPECT_EQ(record.first_sequence, record.position * 10);
      EXPECT_EQ(record.command_count, 10u);
      positions.push_back(record.position);
      return Unit{};
    });
    EXPECT_TRUE(done.ok()) << done.error().message;
    return positions;
  }
  static std::vector<uint64_t> range(uint64_t first, uint64_t last) {
    std::vector<uint64_t> positions;
    for (uint64_t p = first; p <= last; ++p) positions.push_back(p);
    return positions;
  }

  std::unique_ptr<Backend> backend_ = GetParam().second();
};

TEST_P(JournalConformance, ANewOneIsEmpty) {
  EXPECT_EQ(journal().first_position(), 1u);
  EXPECT_EQ(journal().last_position(), 0u);
  EXPECT_EQ(journal().space(), JournalSpace::kOpen);
  EXPECT_TRUE(read(1).empty());
}

TEST_P(JournalConformance, SyncedRecordsSurviveARestart) {
  append_many(40, 1000);
  backend_->restart();
  EXPECT_EQ(journal().last_position(), 40u);
  EXPECT_EQ(read(1, 1000), range(1, 40));
}

TEST_P(JournalConformance, SyncedRecordsSurviveACrashAndTheUnsyncedOnesAreAPrefix) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    backend_ = GetParam().second();
    append_many(5);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(append().ok());
    backend_->crash(seed);
    EXPECT_GE(journal().last_position(), 5u);
    EXPECT_LE(journal().last_position(), 9u);
    EXPECT_EQ(read(1), range(1, journal().last_position()));
  }
}

TEST_P(JournalConformance, ARecordIsReadBeforeItIsSynced) {
  append_many(2);
  ASSERT_TRUE(append().ok());
  EXPECT_EQ(read(1), range(1, 3));
  EXPECT_EQ(read(3), range(3, 3));
}

TEST_P(JournalConformance, ReadingBehindTheEndVisitsNothing) {
  append_many(2);
  EXPECT_TRUE(read(3).empty());
  EXPECT_TRUE(read(100).empty());
}

TEST_P(JournalConformance, ReadingStopsAtTheVisitorsError) {
  append_many(5);
  int visits = 0;
  const Result<Unit> done = journal().read_from(1, [&](const JournalRecord&) -> Result<Unit> {
    if (++visits == 3) return Error{.code = ErrorCode::kVersion, .message = "no further"};
    return Unit{};
  });
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kVersion);
  EXPECT_EQ(visits, 3);
}

TEST_P(JournalConformance, AnEmptyPayloadIsARecord) {
  ASSERT_TRUE(journal().append({.position = 1, .term = 1}).ok());
  ASSERT_TRUE(journal().sync().ok());
  backend_->restart();
  EXPECT_EQ(journal().last_position(), 1u);
}

TEST_P(JournalConformance, AGroupOverTheLimitIsRefusedAndNothingChanges) {
  append_many(1);
  const std::string huge(limits::kGroupBytesMax + 1, 'x');
  const Result<Unit> done = journal().append({.position = 2, .term = 3, .payload = huge});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(journal().last_position(), 1u);
  append_many(1);
  EXPECT_EQ(read(1), range(1, 2));
}

TEST_P(JournalConformance, TruncatedRecordsStayGoneAndTheirPositionsAreUsedAgain) {
  append_many(60, 1000);
  ASSERT_TRUE(journal().truncate_after(25).ok());
  EXPECT_EQ(journal().last_position(), 25u);
  EXPECT_EQ(read(1, 1000), range(1, 25));
  backend_->crash(1);
  EXPECT_EQ(journal().last_position(), 25u);
  append_many(3, 1000);
  backend_->restart();
  EXPECT_EQ(read(1, 1000), range(1, 28));
}

TEST_P(JournalConformance, TruncatingToTheStartLeavesAnEmptyJournal) {
  append_many(30, 1000);
  ASSERT_TRUE(journal().truncate_after(0).ok());
  EXPECT_EQ(journal().last_position(), 0u);
  append_many(2, 1000);
  backend_->restart();
  EXPECT_EQ(read(1, 1000), range(1, 2));
}

TEST_P(JournalConformance, ATermMayFallBackToThatOfTheNewEndAfterATruncation) {
  ASSERT_TRUE(journal().append({.position = 1, .term = 3}).ok());
  ASSERT_TRUE(journal().append({.position = 2, .term = 9}).ok());
  ASSERT_TRUE(journal().sync().ok());
  ASSERT_TRUE(journal().truncate_after(1).ok());
  ASSERT_TRUE(journal().append({.position = 2, .term = 4}).ok());
  ASSERT_TRUE(journal().sync().ok());
  backend_->restart();
  EXPECT_EQ(journal().last_position(), 2u);
}

TEST_P(JournalConformance, CompactionKeepsEverythingFromThePositionOn) {
  append_many(60, 1000);
  ASSERT_TRUE(journal().compact_before(40).ok());
  const uint64_t first = journal().first_position();
  EXPECT_GT(first, 1u);
  EXPECT_LE(first, 40u);
  EXPECT_EQ(read(40, 1000), range(40, 60));
  const auto ignore = [](const JournalRecord&) -> Result<Unit> { return Unit{}; };
  EXPECT_EQ(journal().read_from(first - 1, ignore).error().code, ErrorCode::kNotFound);
  backend_->restart();
  EXPECT_EQ(journal().first_position(), first);
  append_many(2, 1000);
  EXPECT_EQ(read(40, 1000), range(40, 62));
}

TEST_P(JournalConformance, PositionsGoOnAfterEverythingWasCompacted) {
  append_many(60, 1000);
  ASSERT_TRUE(journal().compact_before(61).ok());
  backend_->restart();
  EXPECT_EQ(journal().last_position(), 60u);
  append_many(1, 1000);
  EXPECT_EQ(journal().last_position(), 61u);
}

TEST_P(JournalConformance, ASealedJournalOpensAgain) {
  append_many(3);
  ASSERT_TRUE(journal().seal().ok());
  backend_->restart();
  EXPECT_EQ(journal().last_position(), 3u);
  append_many(2);
  backend_->crash(2);
  EXPECT_EQ(read(1), range(1, 5));
}

TEST_P(JournalConformance, AnEmptyJournalCanBeSealed) {
  ASSERT_TRUE(journal().seal().ok());
  backend_->restart();
  EXPECT_EQ(journal().last_position(), 0u);
  append_many(1);
  backend_->restart();
  EXPECT_EQ(journal().last_position(), 1u);
}

TEST_P(JournalConformance, AFullDiskLeavesTheReserveAndOpensAgainByItself) {
  append_many(3, 1000);
  backend_->fill_disk();
  while (journal().space() == JournalSpace::kOpen) append_many(1, 1000);
  // The reserve is at least 12,000 bytes.
  append_many(10, 1000);
  bool refused = false;
  for (int i = 0; i < 200 && !refused; ++i) {
    const uint64_t last = journal().last_position();
    const Result<Unit> appended = append(1000);
    if (appended) {
      ASSERT_TRUE(journal().sync().ok());
      continue;
    }
    refused = true;
    EXPECT_EQ(appended.error().code, ErrorCode::kStorageFull);
    EXPECT_EQ(journal().last_position(), last);
    EXPECT_EQ(journal().space(), JournalSpace::kReserveOnly);
  }
  EXPECT_TRUE(refused);
  const uint64_t last = journal().last_position();
  EXPECT_EQ(read(1, 1000), range(1, last));
  backend_->free_disk();
  EXPECT_EQ(journal().space(), JournalSpace::kOpen);
  append_many(30, 1000);
  backend_->restart();
  EXPECT_EQ(read(1, 1000), range(1, last + 30));
}

TEST_P(JournalConformance, AFailedSyncIsAnUnknownOutcomeAndNothingFollows) {
  append_many(2);
  ASSERT_TRUE(append().ok());
  backend_->break_sync();
  EXPECT_EQ(journal().sync().error().code, ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(journal().sync().error().code, ErrorCode::kIo);
  EXPECT_EQ(append().error().code, ErrorCode::kIo);
  EXPECT_EQ(journal().truncate_after(1).error().code, ErrorCode::kIo);
  EXPECT_EQ(journal().compact_before(1).error().code, ErrorCode::kIo);
  EXPECT_EQ(journal().seal().error().code, ErrorCode::kIo);
  const auto ignore = [](const JournalRecord&) -> Result<Unit> { return Unit{}; };
  EXPECT_EQ(journal().read_from(1, ignore).error().code, ErrorCode::kIo);
  backend_->crash(3);
  EXPECT_GE(journal().last_position(), 2u);
  EXPECT_LE(journal().last_position(), 3u);
}

TEST_P(JournalConformance, APositionThatDoesNotFollowIsABug) {
  append_many(1);
  EXPECT_DEATH((void)journal().append({.position = 3, .term = 3}).ok(), "CHECK failed");
  EXPECT_DEATH((void)journal().append({.position = 2, .term = 2}).ok(), "CHECK failed");
}

TEST_P(JournalConformance, NothingMayFollowTheSeal) {
  ASSERT_TRUE(journal().seal().ok());
  EXPECT_DEATH((void)journal().append({.position = 1, .term = 1}).ok(), "CHECK failed");
}

INSTANTIATE_TEST_SUITE_P(
    Backends, JournalConformance,
    ::testing::Values(
        std::pair<const char*, MakeBackend>{"memory", [] { return std::make_unique<MemoryBackend>(); }},
        std::pair<const char*, MakeBackend>{"file", [] { return std::make_unique<FileBackend>(); }}),
    [](const auto& parameter) { return parameter.param.first; });

}  // namespace
}  // namespace gpusched
