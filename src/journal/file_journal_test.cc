#include "journal/file_journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>

#include "base/prng.h"
#include "journal/disk/memory_disk.h"
#include "journal/disk/process_disk.h"
#include "journal/journal_inspect.h"

namespace {
thread_local uint64_t allocations = 0;
}  // namespace

// Counts this thread's allocations, for the promise that a commit makes none. Not inlined: the compiler would
// see `free` meet a `new` that it does not know for this one.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations += 1;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace gpusched {
namespace {

constexpr uint64_t kSegmentBytes = 16384;
const std::string kFirst = "journal/0000000000000001.seg";

FileJournalOptions small(MemoryDisk& disk) {
  return {
      .segment_bytes = kSegmentBytes, .reserve_bytes = 1, .background = false, .disk = &disk, .store_id = 42};
}

std::unique_ptr<FileJournal> open(MemoryDisk& disk) {
  auto journal = FileJournal::open("journal", small(disk));
  EXPECT_TRUE(journal.ok()) << journal.error().message;
  return journal ? std::move(*journal) : nullptr;
}

void append(Journal& journal, int count, std::size_t bytes = 500) {
  for (int i = 0; i < count; ++i) {
    const uint64_t position = journal.last_position() + 1;
    const std::string payload(bytes, static_cast<char>('a' + position % 26));
    ASSERT_TRUE(journal.append({.position = position, .term = 1, .payload = payload}).ok());
    ASSERT_TRUE(journal.sync().ok());
  }
}

/// Offset of a record in the first segment when all have payloads of `bytes`.
uint64_t offset_of(uint64_t position, std::size_t bytes = 500) {
  return kSegmentHeaderBytes + (position - 1) * record_bytes(bytes);
}

Error error_of(MemoryDisk& disk) {
  const auto journal = FileJournal::open("journal", small(disk));
  EXPECT_FALSE(journal.ok());
  return journal ? Error{} : journal.error();
}

TEST(FileJournal, WhatIsWrittenOutIsReadFromTheFilesAndLostByNoEndOfTheProcess) {
  MemoryDisk disk;
  const auto journal = open(disk);
  for (uint64_t position = 1; position <= 60; ++position) {
    ASSERT_TRUE(journal->append({.position = position, .term = 1, .payload = std::string(500, 'a')}).ok());
    ASSERT_TRUE(journal->write_out().ok());
  }
  uint64_t read = 0;
  ASSERT_TRUE(journal
                  ->read_from(1,
                              [&](const JournalRecord& record) {
                                EXPECT_EQ(record.position, ++read);
                                return Result<Unit>(Unit{});
                              })
                  .ok());
  EXPECT_EQ(read, 60u);
  EXPECT_EQ(open(*disk.killed())->last_position(), 60u);
}

TEST(FileJournal, ALossOfPowerMayTakeWhatWasOnlyWrittenOutAndNothingElse) {
  MemoryDisk disk;
  const auto journal = open(disk);
  append(*journal, 3);
  for (uint64_t position = 4; position <= 12; ++position) {
    ASSERT_TRUE(journal->append({.position = position, .term = 1, .payload = std::string(500, 'a')}).ok());
    ASSERT_TRUE(journal->write_out().ok());
  }
  std::set<uint64_t> ends;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Prng draw(seed);
    const auto left = open(*disk.crash(draw));
    ASSERT_NE(left, nullptr);
    ends.insert(left->last_position());
  }
  EXPECT_GE(*ends.begin(), 3u);
  EXPECT_GT(ends.size(), 1u);
  ASSERT_TRUE(journal->sync().ok());
  Prng draw(1);
  EXPECT_EQ(open(*disk.crash(draw))->last_position(), 12u);
}

TEST(FileJournal, ATornTailIsCutBackAndReported) {
  MemoryDisk disk;
  append(*open(disk), 3);
  disk.corrupt(kFirst, offset_of(4), std::string(300, 'x'));
  const auto journal = open(disk);
  EXPECT_EQ(journal->last_position(), 3u);
  EXPECT_EQ(journal->open_report().bytes_cut, 300u);
  EXPECT_EQ(journal->open_report().segment, kFirst);
  EXPECT_EQ(journal->open_report().offset, offset_of(4));
  EXPECT_EQ(journal->open_report().reason, "the write of record 4 was not finished");
}

TEST(FileJournal, DamageToTheLastRecordIsATornTailWithoutASeal) {
  MemoryDisk disk;
  append(*open(disk), 3);
  disk.corrupt(kFirst, offset_of(3) + 100, "!");
  EXPECT_EQ(open(disk)->last_position(), 2u);
}

TEST(FileJournal, DamageToTheLastRecordBeforeASealIsRefused) {
  MemoryDisk disk;
  {
    const auto journal = open(disk);
    append(*journal, 3);
    ASSERT_TRUE(journal->seal().ok());
  }
  disk.corrupt(kFirst, offset_of(3) + 100, "!");
  const Error error = error_of(disk);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_NE(error.message.find(kFirst + ", offset " + std::to_string(offset_of(3))), std::string::npos)
      << error.message;
  EXPECT_NE(error.message.find("sealed"), std::string::npos);
  EXPECT_NE(error.message.find("backup"), std::string::npos);
}

TEST(FileJournal, BytesBehindTheSealAreRefused) {
  MemoryDisk disk;
  {
    const auto journal = open(disk);
    append(*journal, 3);
    ASSERT_TRUE(journal->seal().ok());
  }
  disk.corrupt(kFirst, kSegmentBytes - 8, "!");
  EXPECT_EQ(error_of(disk).code, ErrorCode::kCorrupt);
}

TEST(FileJournal, EveryDamagedByteBeforeTheLastRecordIsRefusedAndNothingIsChanged) {
  MemoryDisk disk;
  append(*open(disk), 4, 100);
  for (uint64_t offset = 0; offset < offset_of(4, 100); offset += 3) {
    const bool unused_header = offset >= 64 && offset < kSegmentHeaderBytes;
    if (unused_header && offset % 201 != 0) continue;
    const std::unique_ptr<MemoryDisk> image = disk.killed();
    const char flipped = static_cast<char>(image->content(kFirst)[offset] ^ 0x20);
    image->corrupt(kFirst, offset, {&flipped, 1});
    const std::string before = image->content(kFirst);
    const Error error = error_of(*image);
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << offset;
    EXPECT_NE(error.message.find(kFirst + ", offset "), std::string::npos) << error.message;
    EXPECT_EQ(image->content(kFirst), before);
  }
}

TEST(FileJournal, DamageInASegmentThatIsNotTheLastIsRefused) {
  MemoryDisk disk;
  append(*open(disk), 40);
  const std::string content = disk.content(kFirst);
  // Even the last record of it, and even one that was wiped to zero bytes.
  uint64_t last = kSegmentHeaderBytes;
  while (content.substr(last + record_bytes(500), 4) == content.substr(kSegmentHeaderBytes, 4)) {
    last += record_bytes(500);
  }
  disk.corrupt(kFirst, last, std::string(record_bytes(500), '\0'));
  const Error error = error_of(disk);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_NE(error.message.find(kFirst + ", offset " + std::to_string(last)), std::string::npos);
}

TEST(FileJournal, AMissingSegmentInTheMiddleIsRefused) {
  MemoryDisk disk;
  append(*open(disk), 60);
  ASSERT_TRUE(disk.remove("journal/0000000000000002.seg").ok());
  EXPECT_EQ(error_of(disk).code, ErrorCode::kCorrupt);
}

TEST(FileJournal, ASegmentOfAnotherJournalIsRefused) {
  MemoryDisk disk;
  append(*open(disk), 2);
  disk.corrupt("journal/VERSION", 0, encode_version({.format = 1, .store_id = 43}));
  const Error error = error_of(disk);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_NE(error.message.find("another journal"), std::string::npos);
}

TEST(FileJournal, ANewerVersionIsRefused) {
  MemoryDisk disk;
  append(*open(disk), 2);
  disk.corrupt("journal/VERSION", 0, encode_version({.format = 2, .store_id = 42}));
  EXPECT_EQ(error_of(disk).code, ErrorCode::kVersion);
}

TEST(FileJournal, SegmentsWithoutAVersionFileAreRefused) {
  MemoryDisk disk;
  append(*open(disk), 2);
  ASSERT_TRUE(disk.remove("journal/VERSION").ok());
  EXPECT_EQ(error_of(disk).code, ErrorCode::kCorrupt);
}

TEST(FileJournal, TheReportTellsANewFolderACleanEndAndAnInterruptedOne) {
  MemoryDisk disk;
  {
    const auto journal = open(disk);
    EXPECT_TRUE(journal->open_report().created);
    append(*journal, 40);
    ASSERT_TRUE(journal->seal().ok());
  }
  {
    const auto journal = open(disk);
    EXPECT_FALSE(journal->open_report().created);
    EXPECT_TRUE(journal->open_report().sealed);
    EXPECT_EQ(journal->open_report().records, 40u);
    EXPECT_EQ(journal->open_report().last_position, 40u);
    EXPECT_EQ(journal->open_report().segments, 2u);
  }
  EXPECT_FALSE(open(disk)->open_report().sealed);
}

TEST(FileJournal, AFullDiskAtTheFirstStartIsAnError) {
  MemoryDisk disk;
  disk.set_capacity(kSegmentBytes / 2);
  EXPECT_EQ(error_of(disk).code, ErrorCode::kStorageFull);
}

TEST(FileJournal, AJournalOpensOnAFullDiskWithItsReserve) {
  MemoryDisk disk;
  append(*open(disk), 2);
  ASSERT_TRUE(disk.remove("journal/0000000000000002.seg").ok());
  ASSERT_TRUE(disk.remove("journal/0000000000000003.seg").ok());
  disk.set_capacity(disk.used());
  const auto journal = open(disk);
  EXPECT_EQ(journal->space(), JournalSpace::kReserveOnly);
  EXPECT_FALSE(journal->space_reason().empty());
  append(*journal, 5);
  disk.set_capacity(UINT64_MAX);
  journal->retry_space();
  EXPECT_EQ(journal->space(), JournalSpace::kOpen);
  EXPECT_TRUE(journal->space_reason().empty());
}

TEST(FileJournal, TheSpaceClosesAndOpensAgainByItself) {
  MemoryDisk disk;
  FileJournalOptions options = small(disk);
  options.background = true;
  options.retry = milliseconds(1);
  auto journal = FileJournal::open("journal", options);
  ASSERT_TRUE(journal.ok());
  disk.set_capacity(disk.used());
  while ((*journal)->space() == JournalSpace::kOpen) append(**journal, 1);
  append(**journal, 10);
  disk.set_capacity(UINT64_MAX);
  while ((*journal)->space() == JournalSpace::kReserveOnly) std::this_thread::yield();
  append(**journal, 100);
  const uint64_t last = (*journal)->last_position();
  journal->reset();
  EXPECT_EQ(open(disk)->last_position(), last);
}

TEST(FileJournal, ASegmentSizeMayChangeBetweenStarts) {
  MemoryDisk disk;
  append(*open(disk), 30);
  FileJournalOptions options = small(disk);
  options.segment_bytes = 2 * kSegmentBytes;
  {
    auto journal = FileJournal::open("journal", options);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    append(**journal, 60);
  }
  EXPECT_EQ(open(disk)->last_position(), 90u);
}

/// A process that writes one more record and is killed before it is synced, or whose sync fails.
enum class BadEnd { kKilled, kSyncFailed };

void end_badly(MemoryDisk& disk, BadEnd how) {
  ProcessDisk process(disk);
  FileJournalOptions options = small(disk);
  options.disk = &process;
  auto journal = FileJournal::open("journal", options);
  ASSERT_TRUE(journal.ok()) << journal.error().message;
  const uint64_t position = (*journal)->last_position() + 1;
  ASSERT_TRUE((*journal)->append({.position = position, .term = 1, .payload = "never synced"}).ok());
  if (how == BadEnd::kKilled) process.die_at(1, /*after=*/false);
  if (how == BadEnd::kSyncFailed) disk.fail_once(MemoryDisk::Call::kSync, {MemoryDisk::Outcome::kFails});
  ASSERT_FALSE((*journal)->sync().ok());
  process.die();
}

TEST(FileJournal, WhatAnEarlierProcessNeverSyncedIsDurableOnceItWasRead) {
  for (const BadEnd how : {BadEnd::kKilled, BadEnd::kSyncFailed}) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      MemoryDisk disk(seed);
      append(*open(disk), 3);
      end_badly(disk, how);
      {
        const auto journal = open(disk);
        ASSERT_EQ(journal->last_position(), 4u);
        // With these it goes on in a new segment, which proves everything before it.
        append(*journal, static_cast<int>(seed % 30));
      }
      const uint64_t acknowledged = 4 + seed % 30;
      Prng prng(seed);
      const std::unique_ptr<MemoryDisk> image = disk.crash(prng);
      const auto journal = FileJournal::open("journal", small(*image));
      ASSERT_TRUE(journal.ok()) << journal.error().message;
      ASSERT_EQ((*journal)->last_position(), acknowledged) << "seed " << seed;
    }
  }
}

TEST(FileJournal, AHeaderThatWasNeverSyncedIsDurableOnceItWasRead) {
  MemoryDisk disk;
  append(*open(disk), 21);
  {
    // The 22nd record goes into a new segment, whose header's sync fails.
    const auto journal = open(disk);
    const std::string payload(500, 'x');
    disk.fail_once(MemoryDisk::Call::kSync, {MemoryDisk::Outcome::kFails});
    const Result<Unit> done = journal->append({.position = 22, .term = 1, .payload = payload});
    ASSERT_FALSE(done.ok());
  }
  append(*open(disk), 1);
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Prng prng(seed);
    EXPECT_EQ(open(*disk.crash(prng))->last_position(), 22u);
  }
}

TEST(FileJournal, ATailIsCutOnlyWhenTwoReadingsOfItAgree) {
  MemoryDisk disk;
  append(*open(disk), 3);
  for (uint64_t reading = 0; reading < 30; ++reading) {
    disk.fail_once(MemoryDisk::Call::kRead, {MemoryDisk::Outcome::kLies}, reading);
    const auto journal = FileJournal::open("journal", small(disk));
    EXPECT_TRUE(!journal || (*journal)->last_position() == 3) << "reading " << reading;
    disk.heal();
  }
  EXPECT_EQ(open(disk)->last_position(), 3u);
}

// Simulator seed 61953529016320: the number was written into the first header as it had been read once.
TEST(FileJournal, ANumberThatWasReadWrongOnceIsNotWritten) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    for (uint64_t reading = 0; reading < 3; ++reading) {
      MemoryDisk disk(seed);
      disk.fail_once(MemoryDisk::Call::kRead, {MemoryDisk::Outcome::kLies}, reading);
      (void)FileJournal::open("journal", small(disk)).ok();  // May be refused.
      disk.heal();
      const auto journal = open(disk);
      ASSERT_NE(journal, nullptr) << "seed " << seed << ", reading " << reading;
      EXPECT_EQ(journal->store_id(), 42u);
    }
  }
}

/// Segments that are there, without the prepared ones.
std::vector<std::string> segments_in_use(const MemoryDisk& disk) {
  std::vector<std::string> found;
  for (const std::string& path : disk.files()) {
    if (path.ends_with(".seg") && !all_zero(disk.content(path))) found.push_back(path);
  }
  return found;
}

TEST(FileJournal, AFileThatCannotBeRemovedIsNoReasonToRefuseTheNextStart) {
  for (uint64_t failing = 0; failing < 4; ++failing) {
    MemoryDisk disk;
    {
      const auto journal = open(disk);
      append(*journal, 100);
      ASSERT_GT(segments_in_use(disk).size(), 4u);
      disk.fail_once(MemoryDisk::Call::kRemove, {MemoryDisk::Outcome::kFails}, failing);
      ASSERT_TRUE(journal->compact_before(100).ok());
    }
    ASSERT_EQ(segments_in_use(disk).size(), 2u);
    const auto journal = open(disk);
    EXPECT_EQ(journal->last_position(), 100u);
    EXPECT_EQ(journal->first_position(), 85u);
    EXPECT_EQ(segments_in_use(disk).size(), 1u);
  }
}

TEST(FileJournal, AFailedRemovalIsTriedAgainWithTheNextCompaction) {
  MemoryDisk disk;
  const auto journal = open(disk);
  append(*journal, 100);
  disk.fail_once(MemoryDisk::Call::kRemove, {MemoryDisk::Outcome::kFails});
  ASSERT_TRUE(journal->compact_before(50).ok());
  ASSERT_TRUE(disk.exists(kFirst));
  ASSERT_TRUE(journal->compact_before(100).ok());
  EXPECT_FALSE(disk.exists(kFirst));
  EXPECT_EQ(segments_in_use(disk).size(), 1u);
}

TEST(FileJournal, DamageToARecordThatWasGivenUpDoesNotMatter) {
  MemoryDisk disk;
  const auto journal = open(disk);
  append(*journal, 100);
  disk.fail(MemoryDisk::Call::kRemove, ErrorCode::kIo);
  ASSERT_TRUE(journal->compact_before(100).ok());
  disk.corrupt(kFirst, 0, "not even a header");
  EXPECT_EQ(open(*disk.killed())->last_position(), 100u);
}

TEST(FileJournal, AGapThatAnOlderVersionLeftDoesNotMatterBeforeTheSnapshots) {
  MemoryDisk disk;
  append(*open(disk), 100);
  ASSERT_TRUE(disk.remove("journal/COMPACT").ok());
  ASSERT_TRUE(disk.remove("journal/0000000000000002.seg").ok());
  EXPECT_EQ(error_of(*disk.killed()).code, ErrorCode::kCorrupt);
  FileJournalOptions options = small(disk);
  options.needed_from = 90;
  const auto journal = FileJournal::open("journal", options);
  ASSERT_TRUE(journal.ok()) << journal.error().message;
  EXPECT_EQ((*journal)->first_position(), 85u);
  EXPECT_NE((*journal)->open_report().passed_over.find("records are missing"), std::string::npos);
  EXPECT_TRUE(disk.exists(kFirst));  // Nobody has given it up for good.
  ASSERT_TRUE((*journal)->compact_before(90).ok());
  EXPECT_FALSE(disk.exists(kFirst));
}

TEST(FileJournal, APreparedFileOfAnotherSizeThatCannotBeRemovedIsPassedBy) {
  MemoryDisk disk;
  append(*open(disk), 2);
  FileJournalOptions options = small(disk);
  options.segment_bytes = 2 * kSegmentBytes;
  disk.fail(MemoryDisk::Call::kRemove, ErrorCode::kIo);
  for (int start = 0; start < 3; ++start) {
    options.segment_bytes += kSegmentBytes;
    auto journal = FileJournal::open("journal", options);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    append(**journal, 100);
  }
  disk.heal();
  EXPECT_EQ(open(disk)->last_position(), 302u);
}

TEST(FileJournal, AnOlderVersionsFolderOpensOnAFullDiskAndCompactsThere) {
  MemoryDisk disk;
  append(*open(disk), 100);
  ASSERT_TRUE(disk.remove("journal/COMPACT").ok());
  disk.set_capacity(disk.used());
  const auto journal = open(disk);
  EXPECT_FALSE(disk.exists("journal/COMPACT"));
  ASSERT_TRUE(journal->compact_before(100).ok());
  EXPECT_TRUE(disk.exists("journal/COMPACT"));
  EXPECT_EQ(segments_in_use(disk).size(), 1u);
}

TEST(FileJournal, ARecordThatNoSegmentHoldsIsRefused) {
  MemoryDisk disk;
  const auto journal = open(disk);
  const std::string payload(kSegmentBytes, 'x');
  EXPECT_EQ(journal->append({.position = 1, .term = 1, .payload = payload}).error().code,
            ErrorCode::kTooLarge);
}

/// The real file system, with the thread that prepares segments.
class FileJournalOnDisk : public ::testing::Test {
 protected:
  FileJournalOnDisk() {
    char path[] = "/tmp/gpusched_journal_XXXXXX";
    CHECK(::mkdtemp(path) != nullptr);
    dir_ = path;
  }
  ~FileJournalOnDisk() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<FileJournal> open() {
    auto journal = FileJournal::open(dir_ + "/journal", {.segment_bytes = 65536, .reserve_bytes = 65536});
    EXPECT_TRUE(journal.ok()) << journal.error().message;
    return journal ? std::move(*journal) : nullptr;
  }
  std::string dir_;
};

TEST_F(FileJournalOnDisk, KeepsRecordsOverManySegments) {
  {
    const auto journal = open();
    append(*journal, 400, 2000);
    ASSERT_TRUE(journal->compact_before(150).ok());
    EXPECT_EQ(journal->space(), JournalSpace::kOpen);
  }
  const auto journal = open();
  EXPECT_EQ(journal->last_position(), 400u);
  uint64_t count = 0;
  const auto visit = [&](const JournalRecord& record) -> Result<Unit> {
    count += record.payload.size() == 2000 ? 1 : 0;
    return Unit{};
  };
  ASSERT_TRUE(journal->read_from(150, visit).ok());
  EXPECT_EQ(count, 251u);
}

TEST_F(FileJournalOnDisk, ASecondOpenerIsRefusedWithThePidOfTheFirst) {
  const auto journal = open();
  const auto second = FileJournal::open(dir_ + "/journal", {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
  EXPECT_NE(second.error().message.find("process " + std::to_string(::getpid())), std::string::npos)
      << second.error().message;
}

TEST_F(FileJournalOnDisk, ASecondOpenerIsRefusedThoughTheLockFileWasRemovedOrReplaced) {
  const auto journal = open();
  std::filesystem::remove(dir_ + "/journal/LOCK");
  const auto second = FileJournal::open(dir_ + "/journal", {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
  std::ofstream(dir_ + "/journal/LOCK") << "somebody's own\n";
  const auto third = FileJournal::open(dir_ + "/journal", {});
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, ErrorCode::kLocked);
}

TEST_F(FileJournalOnDisk, AWriterWhoseFolderWasReplacedStopsBeforeItMakesAnotherFile) {
  const auto journal = open();
  append(*journal, 3);
  std::filesystem::rename(dir_ + "/journal", dir_ + "/moved");
  std::filesystem::copy(dir_ + "/moved", dir_ + "/journal", std::filesystem::copy_options::recursive);
  std::optional<Error> refused;
  for (uint64_t position = 4; position <= 200 && !refused; ++position) {
    const std::string payload(2'000, 'x');
    Result<Unit> done = journal->append({.position = position, .term = 1, .payload = payload});
    if (done) done = journal->sync();
    if (!done) refused = done.error();
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->message.find("moved or replaced"), std::string::npos) << refused->message;
  const auto other = FileJournal::open(dir_ + "/journal", {.segment_bytes = 65536, .reserve_bytes = 65536});
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ((*other)->last_position(), 3u);
}

TEST_F(FileJournalOnDisk, AKilledHolderLeavesNoLock) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto journal = FileJournal::open(dir_ + "/journal", {.segment_bytes = 65536, .reserve_bytes = 1});
    const std::string payload = "kept";
    if (journal) (void)(*journal)->append({.position = 1, .term = 1, .payload = payload}).ok();
    if (journal) (void)(*journal)->sync().ok();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const auto journal = open();
  ASSERT_NE(journal, nullptr);
  EXPECT_EQ(journal->last_position(), 1u);
}

TEST_F(FileJournalOnDisk, TheFolderAboveMustExist) {
  const auto journal = FileJournal::open(dir_ + "/a/b", {});
  ASSERT_FALSE(journal.ok());
  EXPECT_EQ(journal.error().code, ErrorCode::kNotFound);
}

TEST_F(FileJournalOnDisk, ACommitAllocatesNothing) {
  const auto journal = open();
  const std::string payload(16384, 'p');
  uint64_t position = 0;
  const auto commit = [&] {
    for (int i = 0; i < 2; ++i) {
      const JournalRecord record{.position = ++position, .term = 1, .payload = payload};
      ASSERT_TRUE(journal->append(record).ok());
      ASSERT_TRUE(journal->sync().ok());
    }
  };
  commit();
  ASSERT_TRUE(journal->truncate_after(0).ok());
  position = 0;
  const uint64_t before = allocations;
  commit();
  EXPECT_EQ(allocations, before);
}

TEST_F(FileJournalOnDisk, InspectionWorksBesideARunningWriter) {
  const auto journal = open();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> synced{0};
  std::thread writer([&] {
    while (!stop) {
      append(*journal, 10, 700);
      synced = journal->last_position();
      if (synced % 200 != 0) continue;
      ASSERT_TRUE(journal->compact_before(synced - 100).ok());
    }
  });
  while (synced < 2000) {
    const uint64_t at_least = synced;
    uint64_t last = 0;
    const auto visit = [&](const StoredRecord& stored, uint64_t) -> Result<Unit> {
      EXPECT_TRUE(last == 0 || stored.record.position > last);
      last = stored.record.position;
      return Unit{};
    };
    const auto scan = inspect_journal(posix_disk(), dir_ + "/journal", visit);
    EXPECT_TRUE(scan.ok()) << scan.error().message;
    EXPECT_GE(last, at_least);
  }
  stop = true;
  writer.join();
}

TEST_F(FileJournalOnDisk, InspectionFindsTheJournalInADataFolder) {
  EXPECT_EQ(find_journal_dir(posix_disk(), dir_), dir_);
  open();
  EXPECT_EQ(find_journal_dir(posix_disk(), dir_), dir_ + "/journal");
  EXPECT_EQ(find_journal_dir(posix_disk(), dir_ + "/journal"), dir_ + "/journal");
  EXPECT_EQ(inspect_journal(posix_disk(), dir_, {}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace gpusched
