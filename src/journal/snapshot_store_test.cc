#include "journal/snapshot_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/prng.h"
#include "journal/disk/memory_disk.h"

namespace gpusched {
namespace {

std::string content_of(uint64_t seed, std::size_t bytes) {
  Prng prng(seed);
  std::string content;
  while (content.size() < bytes) content.push_back(static_cast<char>(prng.next()));
  return content;
}

std::unique_ptr<SnapshotStore> open(Disk& disk) {
  auto store = SnapshotStore::open("snapshots", &disk);
  EXPECT_TRUE(store.ok());
  return std::move(*store);
}

Result<Unit> save(SnapshotStore& store, uint64_t position, std::string_view content) {
  auto writer =
      store.begin({.last_sequence = position * 100, .last_position = position, .state_digest = position * 7});
  if (!writer) return writer.error();
  // In pieces that do not match the chunks.
  for (std::size_t at = 0; at < content.size(); at += 100'003) {
    const Result<Unit> written = (*writer)->write(content.substr(at, 100'003));
    if (!written) return written;
  }
  return store.commit(**writer, [](const Snapshot&) -> Result<Unit> { return Unit{}; });
}

/// Accepts all but this content.
SnapshotJudge refusing(std::string content) {
  return [content = std::move(content)](const Snapshot& snapshot) -> Result<Unit> {
    if (snapshot.content() != content) return Unit{};
    return Error{.code = ErrorCode::kCorrupt, .message = "it cannot be decoded"};
  };
}

std::string path_of(uint64_t position) {
  const std::string digits = std::to_string(position);
  return "snapshots/" + std::string(20 - digits.size(), '0') + digits + ".snap";
}

TEST(SnapshotStore, AnEmptyFolderHasNone) {
  MemoryDisk disk;
  const auto latest = open(disk)->latest();
  ASSERT_TRUE(latest.ok());
  EXPECT_FALSE(latest->snapshot.has_value());
}

TEST(SnapshotStore, ASnapshotReadsBackAsItWasWritten) {
  for (const std::size_t bytes : {0u, 1u, 262'144u, 262'145u, 1'000'000u}) {
    MemoryDisk disk;
    const std::string content = content_of(1, bytes);
    ASSERT_TRUE(save(*open(disk), 5, content).ok());
    const auto latest = open(disk)->latest();
    ASSERT_TRUE(latest.ok());
    ASSERT_TRUE(latest->snapshot.has_value());
    EXPECT_EQ(latest->snapshot->content(), content);
    EXPECT_EQ(latest->snapshot->info.last_position, 5u);
    EXPECT_EQ(latest->snapshot->info.last_sequence, 500u);
    EXPECT_EQ(latest->snapshot->info.state_digest, 35u);
    EXPECT_EQ(latest->snapshot->info.content_bytes, bytes);
    EXPECT_TRUE(latest->refused.empty());
  }
}

TEST(SnapshotStore, ADigestMayBeSetAtTheEnd) {
  MemoryDisk disk;
  auto store = open(disk);
  auto writer = store->begin({.last_sequence = 1, .last_position = 1});
  ASSERT_TRUE(writer.ok());
  (*writer)->set_state_digest(99);
  ASSERT_TRUE(store->commit(**writer, refusing("nothing")).ok());
  EXPECT_EQ(store->latest()->snapshot->info.state_digest, 99u);
}

TEST(SnapshotStore, TheNewestTwoAreKept) {
  MemoryDisk disk;
  auto store = open(disk);
  for (const uint64_t position : {3, 9, 10, 200}) {
    ASSERT_TRUE(save(*store, position, "state").ok());
    ASSERT_TRUE(store->prune().ok());
  }
  EXPECT_FALSE(disk.exists(path_of(3)));
  EXPECT_FALSE(disk.exists(path_of(9)));
  EXPECT_TRUE(disk.exists(path_of(10)));
  EXPECT_EQ(store->latest()->snapshot->info.last_position, 200u);
  EXPECT_EQ(*store->compactable_position(), 10u);
}

TEST(SnapshotStore, NothingIsCompactableBeforeTheSecondSnapshot) {
  MemoryDisk disk;
  auto store = open(disk);
  EXPECT_EQ(*store->compactable_position(), 0u);
  ASSERT_TRUE(save(*store, 10, "state").ok());
  EXPECT_EQ(*store->compactable_position(), 0u);
}

TEST(SnapshotStore, EveryDamagedByteOfTheNewestFallsBackToThePreviousOne) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open(disk), 1, "the old state").ok());
  ASSERT_TRUE(save(*open(disk), 2, content_of(2, 300'000)).ok());
  const std::string bytes = disk.content(path_of(2));
  for (std::size_t at = 0; at < bytes.size(); at += at < 64 || at + 16 > bytes.size() ? 1 : 1'009) {
    const auto image = disk.killed();
    const char flipped = static_cast<char>(bytes[at] ^ 1);
    image->corrupt(path_of(2), at, {&flipped, 1});
    const auto latest = open(*image)->latest();
    ASSERT_TRUE(latest.ok()) << at;
    EXPECT_EQ(latest->snapshot->info.last_position, 1u) << at;
    ASSERT_EQ(latest->refused.size(), 1u);
    EXPECT_NE(latest->refused[0].find(path_of(2)), std::string::npos);
  }
}

TEST(SnapshotStore, ADamagedOneDoesNotPushOutAWholeOne) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  ASSERT_TRUE(save(*store, 2, "two").ok());
  disk.corrupt(path_of(2), 4096, "T");
  ASSERT_TRUE(store->latest().ok());
  ASSERT_TRUE(save(*store, 3, "three").ok());
  EXPECT_EQ(*store->compactable_position(), 1u);
  ASSERT_TRUE(store->prune().ok());
  EXPECT_TRUE(disk.exists(path_of(1)));
  EXPECT_FALSE(disk.exists(path_of(2)));
}

TEST(SnapshotStore, ADamagedOneIsReplacedByANewOneOfTheSamePosition) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  ASSERT_TRUE(save(*store, 2, "two").ok());
  disk.corrupt(path_of(2), 4096, "T");
  ASSERT_TRUE(store->latest().ok());
  ASSERT_TRUE(save(*store, 2, "two").ok());
  ASSERT_TRUE(store->prune().ok());
  EXPECT_EQ(store->latest()->snapshot->content(), "two");
}

TEST(SnapshotStore, WithoutAnyUsableOneItSaysWhyAndUpToWhereTheyWent) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open(disk), 1, "one").ok());
  ASSERT_TRUE(save(*open(disk), 12, "twelve").ok());
  disk.corrupt(path_of(12), 4096, "T");
  const auto latest = open(disk)->latest(refusing("one"));
  ASSERT_TRUE(latest.ok());
  EXPECT_FALSE(latest->snapshot.has_value());
  ASSERT_EQ(latest->refused.size(), 2u);
  EXPECT_EQ(latest->refused[1], path_of(1) + ": it cannot be decoded");
  EXPECT_EQ(latest->last_position, 12u);
}

TEST(SnapshotStore, OneThatTheJudgeRefusesIsPassedOverForTheOlderOne) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  ASSERT_TRUE(save(*store, 2, "two").ok());
  const auto latest = store->latest(refusing("two"));
  ASSERT_TRUE(latest.ok());
  EXPECT_EQ(latest->snapshot->info.last_position, 1u);
  EXPECT_EQ(latest->refused, std::vector<std::string>{path_of(2) + ": it cannot be decoded"});
  // A refused snapshot stands for nothing: with the next one there are two again.
  ASSERT_TRUE(save(*store, 3, "three").ok());
  ASSERT_TRUE(store->prune().ok());
  EXPECT_EQ(*store->compactable_position(), 1u);
  EXPECT_TRUE(disk.exists(path_of(1)));
  EXPECT_FALSE(disk.exists(path_of(2)));
}

TEST(SnapshotStore, ANewerProgramsIsNeverPassedOver) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  ASSERT_TRUE(save(*store, 2, "two").ok());
  const auto latest = store->latest([](const Snapshot&) -> Result<Unit> {
    return Error{.code = ErrorCode::kVersion, .message = "a newer program's"};
  });
  ASSERT_FALSE(latest.ok());
  EXPECT_EQ(latest.error().code, ErrorCode::kVersion);
}

TEST(SnapshotStore, OneThatWasRenamedIsRefused) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  ASSERT_TRUE(save(*store, 2, "two").ok());
  ASSERT_TRUE(disk.rename(path_of(2), path_of(7)).ok());
  const auto latest = store->latest();
  ASSERT_TRUE(latest.ok());
  EXPECT_EQ(latest->snapshot->info.last_position, 1u);
  ASSERT_EQ(latest->refused.size(), 1u);
}

TEST(SnapshotStore, WhatTheJudgeRefusesNeverBecomesVisible) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  {
    auto writer = store->begin({.last_sequence = 2, .last_position = 2});
    ASSERT_TRUE((*writer)->write("two").ok());
    const Result<Unit> committed = store->commit(**writer, refusing("two"));
    ASSERT_FALSE(committed.ok());
    EXPECT_EQ(committed.error().message, "it cannot be decoded");
    EXPECT_FALSE(disk.exists(path_of(2)));
  }
  EXPECT_EQ(disk.list("snapshots")->size(), 1u);
  EXPECT_EQ(store->latest()->snapshot->content(), "one");
}

TEST(SnapshotStore, WhatComesBackDifferentFromTheDiskNeverBecomesVisible) {
  MemoryDisk disk;
  auto store = open(disk);
  const std::string temporary = path_of(2) + ".tmp";
  auto writer = store->begin({.last_sequence = 2, .last_position = 2});
  ASSERT_TRUE((*writer)->write("two").ok());
  // The disk decays while it is written: behind the sync, before the reading.
  int calls = 0;
  disk.set_after_change([&] {
    const bool whole =
        disk.exists(temporary) && disk.content(temporary).size() == 4096 + 3 + 4;  // Trailer, header, sync.
    if (whole && ++calls == 3) disk.corrupt(temporary, 4097, "X");
  });
  const Result<Unit> committed = store->commit(**writer, refusing("nothing"));
  ASSERT_FALSE(committed.ok());
  EXPECT_EQ(committed.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(disk.exists(path_of(2)));
}

TEST(SnapshotStore, TheOlderOneIsReadAgainBeforeAnythingIsRemovedForItsSake) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  ASSERT_TRUE(save(*store, 2, "two").ok());
  ASSERT_TRUE(save(*store, 3, "three").ok());
  disk.corrupt(path_of(2), 4096, "T");
  ASSERT_TRUE(store->prune().ok());
  EXPECT_TRUE(disk.exists(path_of(1)));
  EXPECT_FALSE(disk.exists(path_of(2)));
  EXPECT_EQ(*store->compactable_position(), 1u);
}

TEST(SnapshotStore, OneThatNobodyProvedIsNotCounted) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open(disk), 1, "one").ok());
  ASSERT_TRUE(save(*open(disk), 2, "two").ok());
  auto store = open(disk);  // Another process: it read none of them.
  ASSERT_TRUE(save(*store, 3, "three").ok());
  ASSERT_TRUE(store->prune().ok());
  EXPECT_EQ(*store->compactable_position(), 0u);
  EXPECT_TRUE(disk.exists(path_of(1)));
  EXPECT_TRUE(disk.exists(path_of(2)));
}

std::unique_ptr<SnapshotStore> open_as(Disk& disk, uint64_t store_id) {
  auto store = SnapshotStore::open("snapshots", &disk, store_id);
  EXPECT_TRUE(store.ok());
  return std::move(*store);
}

TEST(SnapshotStore, ASnapshotOfAnotherJournalIsRefusedWithBothNumbers) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open_as(disk, 0xA1), 1, "theirs").ok());
  const auto latest = open_as(disk, 0xB2)->latest();
  ASSERT_FALSE(latest.ok());
  EXPECT_EQ(latest.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(latest.error().message.find("00000000000000a1"), std::string::npos) << latest.error().message;
  EXPECT_NE(latest.error().message.find("00000000000000b2"), std::string::npos);
  EXPECT_EQ(open_as(disk, 0xA1)->latest()->snapshot->content(), "theirs");
}

TEST(SnapshotStore, AnOlderSnapshotOfAnotherJournalIsRefusedThoughTheNewestIsOurs) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open_as(disk, 0xA1), 1, "theirs").ok());
  ASSERT_TRUE(save(*open_as(disk, 0xB2), 2, "ours").ok());
  EXPECT_EQ(open_as(disk, 0xB2)->latest().error().code, ErrorCode::kCorrupt);
}

TEST(SnapshotStore, ASnapshotFromBeforeThereWereNumbersIsReadByAnyJournal) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open(disk), 1, "old").ok());
  const auto latest = open_as(disk, 0xB2)->latest();
  ASSERT_TRUE(latest.ok());
  EXPECT_EQ(latest->snapshot->content(), "old");
  EXPECT_EQ(latest->snapshot->info.store_id, 0u);
}

TEST(SnapshotStore, WhatIsNeededOfTheJournalFollowsTheOldestSnapshot) {
  MemoryDisk disk;
  EXPECT_EQ(SnapshotStore::needed_from(disk, "snapshots"), 0u);
  auto store = open(disk);
  EXPECT_EQ(SnapshotStore::needed_from(disk, "snapshots"), 0u);
  ASSERT_TRUE(save(*store, 9, "one").ok());
  ASSERT_TRUE(save(*store, 20, "two").ok());
  EXPECT_EQ(SnapshotStore::needed_from(disk, "snapshots"), 10u);
}

TEST(SnapshotStore, ALeftOverThatCannotBeRemovedDoesNotStopTheStart) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open(disk), 1, "one").ok());
  ASSERT_TRUE(disk.open("snapshots/x.tmp", DiskOpen::kCreate).ok());
  disk.fail(MemoryDisk::Call::kRemove, ErrorCode::kIo);
  EXPECT_EQ(open(disk)->latest()->snapshot->content(), "one");
}

TEST(SnapshotStore, OneThatAKilledProcessRenamedIsDurableOnceItWasOpened) {
  MemoryDisk disk;
  ASSERT_TRUE(save(*open(disk), 1, "one").ok());
  auto store = open(disk);
  disk.fail_once(MemoryDisk::Call::kSyncDir, {MemoryDisk::Outcome::kFails});
  ASSERT_FALSE(save(*store, 2, "two").ok());
  ASSERT_EQ(open(disk)->latest()->snapshot->content(), "two");
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    EXPECT_EQ(open(*disk.crash(prng))->latest()->snapshot->content(), "two");
  }
}

TEST(SnapshotStore, AWriterWithoutCommitLeavesNothing) {
  MemoryDisk disk;
  auto store = open(disk);
  {
    auto writer = store->begin({.last_sequence = 1, .last_position = 1});
    ASSERT_TRUE((*writer)->write("half").ok());
  }
  EXPECT_TRUE(disk.list("snapshots")->empty());
}

TEST(SnapshotStore, AFullDiskKeepsTheOldOne) {
  MemoryDisk disk;
  auto store = open(disk);
  ASSERT_TRUE(save(*store, 1, "one").ok());
  disk.set_capacity(disk.used() + 300'000);
  EXPECT_EQ(save(*store, 2, content_of(3, 1'000'000)).error().code, ErrorCode::kStorageFull);
  EXPECT_EQ(disk.list("snapshots")->size(), 1u);
  EXPECT_EQ(store->latest()->snapshot->content(), "one");
}

TEST(SnapshotStore, EveryCrashPointLeavesTheOldOneOrTheNewOne) {
  MemoryDisk disk;
  Prng prng(77);
  const std::string old_content = content_of(4, 30'000);
  const std::string new_content = content_of(5, 400'000);
  {
    auto store = open(disk);
    ASSERT_TRUE(save(*store, 1, old_content).ok());
    bool committed = false;
    int images = 0;
    disk.set_after_change([&] {
      for (int i = 0; i < 4; ++i) {
        const auto image = disk.crash(prng);
        const auto latest = open(*image)->latest();
        ASSERT_TRUE(latest.ok()) << latest.error().message;
        ASSERT_TRUE(latest->snapshot.has_value());
        const bool is_new = latest->snapshot->info.last_position == 2;
        EXPECT_EQ(latest->snapshot->content(), is_new ? new_content : old_content);
        EXPECT_TRUE(latest->refused.empty());
        EXPECT_TRUE(is_new || !committed);
        images += 1;
      }
    });
    ASSERT_TRUE(save(*store, 2, new_content).ok());
    committed = true;
    ASSERT_TRUE(store->prune().ok());
    disk.set_after_change({});
    EXPECT_GT(images, 20);
  }
}

TEST(SnapshotStore, WorksOnTheRealFileSystem) {
  char path[] = "/tmp/gpusched_snapshot_XXXXXX";
  ASSERT_NE(::mkdtemp(path), nullptr);
  const std::string content = content_of(6, 700'000);
  {
    auto store = SnapshotStore::open(std::string(path) + "/snapshots");
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(save(**store, 1, content).ok());
    const auto latest = (*store)->latest();
    ASSERT_TRUE(latest.ok());
    EXPECT_EQ(latest->snapshot->content(), content);
    EXPECT_EQ(parse_snapshot(latest->snapshot->mapping->bytes())->last_position, 1u);
  }
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace gpusched
