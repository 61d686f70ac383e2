// Every crash point of the file journal: after each disk operation of a script the power goes, what was not
// synced is lost or torn sector by sector, and the journal is opened again.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "journal/disk/memory_disk.h"
#include "journal/disk/process_disk.h"
#include "journal/file_journal.h"

namespace gpusched {
namespace {

constexpr uint64_t kSegmentBytes = 16384;

FileJournalOptions options_for(MemoryDisk& disk) {
  return {.segment_bytes = kSegmentBytes,
          .reserve_bytes = 1,
          .background = false,
          .disk = &disk,
          .store_id = 0xA1B2C3D4E5F60718};
}

/// Records that a reopened journal must and may hold.
struct Expected {
  std::vector<std::string> records;  ///< By position - 1: everything that was appended and not truncated.
  uint64_t must = 0;                 ///< Records up to here were acknowledged.
  uint64_t kept_from = 1;            ///< Records before may have been compacted.
};

/// Reopens an image, checks it against `expected`, writes on, and opens once more.
class Checker {
 public:
  explicit Checker(const Expected& expected) : expected_(expected) {}

  void check(std::unique_ptr<MemoryDisk> image, uint64_t seed, bool crash_again) {
    if (crash_again) crash_during_recovery(*image, seed);
    auto journal = FileJournal::open("journal", options_for(*image));
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    compare(**journal);
    const uint64_t position = (*journal)->last_position() + 1;
    const JournalRecord next{.position = position, .term = 99, .payload = "after the crash"};
    ASSERT_TRUE((*journal)->append(next).ok());
    ASSERT_TRUE((*journal)->sync().ok());
    journal->reset();
    journal = FileJournal::open("journal", options_for(*image));
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_EQ((*journal)->last_position(), position);
    EXPECT_EQ((*journal)->open_report().bytes_cut, 0u);
    images_ += 1;
  }
  int images() const { return images_; }

 private:
  /// The recovery itself may be cut off after each of its own operations.
  void crash_during_recovery(const MemoryDisk& image, uint64_t seed) {
    std::unique_ptr<MemoryDisk> first = image.killed();
    std::vector<std::unique_ptr<MemoryDisk>> later;
    Prng prng(seed);
    first->set_after_change([&] { later.push_back(first->crash(prng)); });
    {
      ASSERT_TRUE(FileJournal::open("journal", options_for(*first)).ok());
    }
    first->set_after_change({});
    for (const auto& disk : later) {
      const auto journal = FileJournal::open("journal", options_for(*disk));
      ASSERT_TRUE(journal.ok()) << journal.error().message;
      compare(**journal);
      images_ += 1;
    }
  }

  void compare(FileJournal& journal) {
    ASSERT_GE(journal.last_position(), expected_.must);
    ASSERT_LE(journal.last_position(), expected_.records.size());
    ASSERT_LE(journal.first_position(), expected_.kept_from);
    uint64_t position = journal.first_position();
    const auto compare_one = [&](const JournalRecord& record) -> Result<Unit> {
      EXPECT_EQ(record.position, position);
      EXPECT_EQ(record.payload, expected_.records[position - 1]);
      position += 1;
      return Unit{};
    };
    const Result<Unit> read = journal.read_from(position, compare_one);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(position, journal.last_position() + 1);
  }

  const Expected& expected_;
  int images_ = 0;
};

/// A journal on a disk that dies after every operation, again and again.
class FileCrash : public ::testing::Test {
 protected:
  void open() {
    auto opened = FileJournal::open("journal", options_for(disk_));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal_ = std::move(*opened);
  }
  void watch(int images_per_operation) {
    disk_.set_after_change([this, images_per_operation] {
      for (int i = 0; i < images_per_operation && !HasFatalFailure(); ++i) {
        checker_.check(disk_.crash(prng_), prng_.next(), operations_ % 7 == 0 && i == 0);
      }
      operations_ += 1;
    });
  }
  void append(std::size_t bytes) {
    const uint64_t position = journal_->last_position() + 1;
    std::string payload = std::to_string(generation_) + "/" + std::to_string(position) + "/";
    while (payload.size() < bytes) payload.push_back(static_cast<char>('a' + prng_.below(26)));
    expected_.records.push_back(payload);
    ASSERT_TRUE(journal_->append({.position = position, .term = 1, .payload = payload}).ok());
  }
  void sync() {
    ASSERT_TRUE(journal_->sync().ok());
    expected_.must = journal_->last_position();
  }
  void truncate_after(uint64_t position) {
    expected_.must = position;
    ASSERT_TRUE(journal_->truncate_after(position).ok());
    expected_.records.resize(position);
    generation_ += 1;
  }

  Prng prng_{20240607};
  MemoryDisk disk_;
  std::unique_ptr<FileJournal> journal_;
  Expected expected_;
  Checker checker_{expected_};
  int operations_ = 0;
  int generation_ = 0;
};

TEST_F(FileCrash, AppendingLosesNothingSyncedAndInventsNothing) {
  watch(3);
  open();
  for (int group = 0; group < 40; ++group) {
    const uint64_t records = 1 + prng_.below(4);
    for (uint64_t i = 0; i < records; ++i) append(prng_.below(3000));
    sync();
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(operations_, 100);
  EXPECT_GT(checker_.images(), 300);
}

TEST_F(FileCrash, ShortWritesAreFinished) {
  disk_.set_short_writes(true);
  watch(1);
  open();
  for (int group = 0; group < 8; ++group) {
    append(prng_.below(5000));
    sync();
    ASSERT_FALSE(HasFatalFailure());
  }
}

/// A process is killed at each of its calls, another one goes on and fills a segment or two, and at each of
/// its calls in turn the power goes.
TEST(FileCrashAfterKill, WhatTheSecondProcessTookOverAndAddedIsNotLost) {
  constexpr uint64_t kCalls = 70;
  Prng prng(31);
  int images = 0;
  for (uint64_t call = 0; call < kCalls; ++call) {
    MemoryDisk disk(call);
    Expected expected;
    {
      ProcessDisk process(disk);
      FileJournalOptions options = options_for(disk);
      options.disk = &process;
      process.die_at(call, call % 2 == 0);
      auto journal = FileJournal::open("journal", options);
      for (uint64_t position = 1; journal.ok() && position <= 12; ++position) {
        expected.records.push_back("first " + std::to_string(position) + std::string(1'500, 'x'));
        const JournalRecord record{.position = position, .term = 1, .payload = expected.records.back()};
        if (!(*journal)->append(record) || !(*journal)->sync() || process.is_dead()) break;
        expected.must = position;
      }
      process.die();
    }
    auto journal = FileJournal::open("journal", options_for(disk));
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    ASSERT_GE((*journal)->last_position(), expected.must);
    expected.records.resize((*journal)->last_position());
    expected.must = expected.records.size();  // Read, so told.
    Checker checker(expected);
    disk.set_after_change([&] { checker.check(disk.crash(prng), prng.next(), false); });
    for (int i = 0; i < 14 && !::testing::Test::HasFatalFailure(); ++i) {
      const uint64_t position = expected.records.size() + 1;
      expected.records.push_back("second " + std::to_string(position) + std::string(1'500, 'y'));
      const JournalRecord record{.position = position, .term = 2, .payload = expected.records.back()};
      ASSERT_TRUE((*journal)->append(record).ok());
      ASSERT_TRUE((*journal)->sync().ok());
      expected.must = position;
    }
    disk.set_after_change({});
    images += checker.images();
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "killed at call " << call;
  }
  EXPECT_GT(images, 1'000);
}

TEST_F(FileCrash, TruncationIsWholeOrResumed) {
  open();
  watch(4);
  for (int round = 0; round < 6; ++round) {
    for (int group = 0; group < 12; ++group) {
      append(500 + prng_.below(2500));
      if (prng_.chance(700)) sync();
    }
    sync();
    const uint64_t last = journal_->last_position();
    truncate_after(last - 1 - prng_.below(std::min<uint64_t>(last - 1, 15)));
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(FileCrash, CompactionKeepsWhatIsAskedFor) {
  open();
  watch(3);
  for (int round = 0; round < 5; ++round) {
    for (int group = 0; group < 12; ++group) {
      append(500 + prng_.below(2500));
      sync();
    }
    expected_.kept_from = journal_->last_position() - 4;
    ASSERT_TRUE(journal_->compact_before(expected_.kept_from).ok());
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(FileCrash, SealingAndReopeningAreCrashSafe) {
  watch(3);
  for (int round = 0; round < 4; ++round) {
    open();
    append(1000);
    sync();
    ASSERT_TRUE(journal_->seal().ok());
    journal_.reset();
    ASSERT_FALSE(HasFatalFailure());
  }
}

/// Every call of a kind fails once: the journal says so, refuses everything, and what it had acknowledged is
/// there at the next start.
TEST(FileFault, NoFailedCallLosesAnAcknowledgedRecord) {
  using Call = MemoryDisk::Call;
  for (const Call call : {Call::kWrite, Call::kSync, Call::kAllocate, Call::kRename, Call::kRemove,
                          Call::kSyncDir, Call::kOpen, Call::kRead}) {
    for (const ErrorCode code : {ErrorCode::kIo, ErrorCode::kStorageFull}) {
      for (uint64_t after = 0; after < 60; ++after) {
        MemoryDisk disk;
        disk.fail(call, code, after);
        uint64_t acknowledged = 0;
        {
          auto journal = FileJournal::open("journal", options_for(disk));
          for (uint64_t position = 1; journal.ok() && position <= 20; ++position) {
            const std::string payload(2000, static_cast<char>('a' + position));
            if (!(*journal)->append({.position = position, .term = 1, .payload = payload})) break;
            if (!(*journal)->sync()) break;
            acknowledged = position;
            if (position == 15 && !(*journal)->compact_before(8)) break;
          }
        }
        disk.heal();
        Prng prng(after);
        const std::unique_ptr<MemoryDisk> image = disk.crash(prng);
        auto journal = FileJournal::open("journal", options_for(*image));
        ASSERT_TRUE(journal.ok()) << journal.error().message << " call " << static_cast<int>(call);
        ASSERT_GE((*journal)->last_position(), acknowledged);
      }
    }
  }
}

}  // namespace
}  // namespace gpusched
