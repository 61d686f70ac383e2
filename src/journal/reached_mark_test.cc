// The mark says what nothing in the segments can say: that the last of them had more in it once.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "journal/disk/memory_disk.h"
#include "journal/file_journal.h"
#include "journal/journal_dir.h"
#include "journal/testing/proof_left.h"

namespace gpusched {
namespace {

constexpr uint64_t kSegmentBytes = 16384;
constexpr uint64_t kStoreId = 42;
constexpr uint64_t kSectorBytes = 512;
const std::string kFirst = "journal/0000000000000001.seg";
const std::string kMark = "journal/REACHED";

Result<std::unique_ptr<FileJournal>> try_open(MemoryDisk& disk) {
  return FileJournal::open("journal", {.segment_bytes = kSegmentBytes,
                                       .reserve_bytes = 1,
                                       .background = false,
                                       .disk = &disk,
                                       .store_id = kStoreId});
}

std::unique_ptr<FileJournal> open(MemoryDisk& disk) {
  auto journal = try_open(disk);
  EXPECT_TRUE(journal.ok()) << journal.error().message;
  return journal ? std::move(*journal) : nullptr;
}

void append(Journal& journal, int count) {
  for (int i = 0; i < count; ++i) {
    const std::string payload(500, 'x');
    ASSERT_TRUE(
        journal.append({.position = journal.last_position() + 1, .term = 1, .payload = payload}).ok());
    ASSERT_TRUE(journal.sync().ok());
  }
}

/// The path of the segment in use that comes last.
std::string last_segment(const MemoryDisk& disk) {
  std::string last;
  for (const std::string& path : disk.files()) {
    if (path.ends_with(".seg") && parse_segment_header(disk.content(path)).state == HeaderState::kValid)
      last = path;
  }
  return last;
}

/// Leaves the bytes of a write of a segment's tail that the device puts at the segment's beginning.
void misplace_tail(MemoryDisk& disk, const std::string& path) {
  const std::string bytes = disk.content(path);
  const std::size_t end = bytes.find_last_not_of('\0') / kSectorBytes * kSectorBytes;
  std::string tail = bytes.substr(end);
  tail.resize(bytes.size(), '\0');
  disk.corrupt(path, 0, tail);
}

void expect_refused(MemoryDisk& disk, const std::string& sentence) {
  const auto journal = try_open(disk);
  ASSERT_FALSE(journal.ok()) << "the journal ends at record " << (*journal)->last_position();
  EXPECT_EQ(journal.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(journal.error().message.find(sentence), std::string::npos) << journal.error().message;
  EXPECT_NE(journal.error().message.find("backup"), std::string::npos) << journal.error().message;
}

TEST(ReachedMark, AJournalWhoseOnlySegmentWasWipedIsNoNewOne) {
  MemoryDisk disk;
  append(*open(disk), 8);
  const std::string before = disk.content(kFirst);
  disk.corrupt(kFirst, 0, std::string(kSegmentBytes, '\0'));
  expect_refused(disk, kFirst + ", offset 0: the segment was in use");
  disk.corrupt(kFirst, 0, before);
  EXPECT_EQ(open(disk)->last_position(), 8u);
}

TEST(ReachedMark, AMisplacedTailIsNoHeaderWhoseWriteWasNotFinished) {
  MemoryDisk disk;
  append(*open(disk), 8);
  misplace_tail(disk, kFirst);
  expect_refused(disk, kFirst + ", offset 0: the segment was in use");
}

TEST(ReachedMark, ALastSegmentThatWasWipedOrRemovedIsMissed) {
  MemoryDisk disk;
  append(*open(disk), 100);
  const std::string last = last_segment(disk);
  ASSERT_NE(last, kFirst);
  {
    const auto image = disk.killed();
    image->corrupt(last, 0, std::string(kSegmentBytes, '\0'));
    expect_refused(*image, last + ", offset 0: the segment was in use");
  }
  {
    const auto image = disk.killed();
    misplace_tail(*image, last);
    expect_refused(*image, last + ", offset 0: the segment was in use");
  }
  {
    const auto image = disk.killed();
    for (const std::string& path : image->files()) {
      if (path.ends_with(".seg") && path >= last) {
        ASSERT_TRUE(image->remove(path).ok());
      }
    }
    expect_refused(*image, last + ", offset 0: the segment was in use");
  }
  EXPECT_EQ(open(disk)->last_position(), 100u);
}

TEST(ReachedMark, WhatAStartFoundIsMissedByTheNextOne) {
  MemoryDisk disk;
  append(*open(disk), 8);
  EXPECT_EQ(open(disk)->last_position(), 8u);
  const uint64_t end_of_5 = kSegmentHeaderBytes + 5 * record_bytes(500);
  disk.corrupt(kFirst, end_of_5, std::string(kSegmentBytes - end_of_5, '\0'));
  expect_refused(disk, "records up to 8 were durable, but the journal ends with record 5");
}

TEST(ReachedMark, AFolderOfAnOlderVersionHasNoneAndGetsOne) {
  MemoryDisk disk;
  append(*open(disk), 8);
  ASSERT_TRUE(disk.remove(kMark).ok());
  disk.set_capacity(disk.used());
  append(*open(disk), 1);
  EXPECT_FALSE(disk.exists(kMark));  // A full disk is no reason to refuse the start.
  disk.set_capacity(UINT64_MAX);
  open(disk);
  EXPECT_EQ(parse_reached_mark(disk.content(kMark), kStoreId).position, 9u);
}

TEST(ReachedMark, WhereAFullDiskTakesNotEvenTheMarkTheOlderOneStaysTrue) {
  MemoryDisk disk;
  append(*open(disk), 8);
  disk.set_rule([](MemoryDisk::Call call, const std::string& path) -> MemoryDisk::Verdict {
    if (call != MemoryDisk::Call::kWrite || path != kMark) return {};
    return {.outcome = MemoryDisk::Outcome::kFails, .code = ErrorCode::kStorageFull};
  });
  append(*open(disk), 92);
  EXPECT_EQ(open(disk)->last_position(), 100u);
  EXPECT_EQ(parse_reached_mark(disk.content(kMark), kStoreId).position, 0u);
  disk.corrupt(kFirst, 0, std::string(kSegmentBytes, '\0'));
  EXPECT_FALSE(try_open(disk).ok());
}

TEST(ReachedMark, OneThatIsNotWholeOrAnothersSaysNothing) {
  MemoryDisk disk;
  append(*open(disk), 8);
  EXPECT_EQ(open(disk)->last_position(), 8u);
  ASSERT_EQ(parse_reached_mark(disk.content(kMark), kStoreId).position, 8u);
  disk.corrupt(kMark, 0, encode_reached_mark(kStoreId + 1, {.position = 9, .segment_index = 7}));
  EXPECT_EQ(open(disk)->last_position(), 8u);
  disk.corrupt(kMark, 9, "!");
  EXPECT_EQ(open(disk)->last_position(), 8u);
}

TEST(ReachedMark, ATruncationTakesItBackBeforeAnythingGoes) {
  MemoryDisk disk;
  std::vector<std::unique_ptr<MemoryDisk>> images;
  {
    const auto journal = open(disk);
    append(*journal, 100);
    disk.set_after_change([&] { images.push_back(disk.killed()); });
    ASSERT_TRUE(journal->truncate_after(3).ok());
    disk.set_after_change(nullptr);
    append(*journal, 1);
  }
  EXPECT_EQ(open(disk)->last_position(), 4u);
  ASSERT_FALSE(images.empty());
  for (const auto& image : images) {
    const uint64_t last = open(*image)->last_position();
    EXPECT_TRUE(last == 100 || last == 3) << last;
  }
}

TEST(ReachedMark, ProofIsLeftOfWhatALaterRecordOrTheMarkSays) {
  MemoryDisk disk;
  append(*open(disk), 8);
  EXPECT_EQ(proof_left(disk, "journal", kStoreId), 7u);  // Nothing says yet that the eighth was synced.
  disk.corrupt(kFirst, 0, std::string(kSegmentHeaderBytes, '\0'));
  EXPECT_EQ(proof_left(disk, "journal", kStoreId), 7u);
  disk.corrupt(kFirst, 0, std::string(kSegmentBytes, '\0'));
  EXPECT_EQ(proof_left(disk, "journal", kStoreId), 0u);
  disk.corrupt(kMark, 0, encode_reached_mark(kStoreId, {.position = 5, .segment_index = 1}));
  EXPECT_EQ(proof_left(disk, "journal", kStoreId), 5u);
}

}  // namespace
}  // namespace gpusched
