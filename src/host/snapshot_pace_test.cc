#include "host/snapshot_pace.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/storage_limits.h"

namespace gpusched {
namespace {

constexpr uint64_t kMega = 1u << 20;
constexpr SnapshotPace::Volume kRoomy{
    .full = false, .free_bytes = 1'000'000 * kMega, .segment_bytes = 16 * kMega};
constexpr SnapshotPace::Volume kFull{.full = true, .free_bytes = 40 * kMega, .segment_bytes = 16 * kMega};
constexpr Time kNow{1'000'000'000'000};

void take(SnapshotPace& pace, uint64_t bytes, bool proven, Time now, const SnapshotPace::Volume& volume) {
  pace.begun(bytes);
  pace.ended(now, proven, volume);
}

TEST(SnapshotPace, IsDueAfterSoMuchJournalAndAsMuchAsTheLastOneWasLarge) {
  SnapshotPace pace(100 * kMega, 0);
  pace.note(100 * kMega - 1);
  EXPECT_FALSE(pace.is_due(kNow, kRoomy));
  pace.note(1);
  EXPECT_TRUE(pace.is_due(kNow, kRoomy));
  take(pace, 300 * kMega, true, kNow, kRoomy);
  pace.note(299 * kMega);
  EXPECT_FALSE(pace.is_due(kNow, kRoomy));
  pace.note(kMega);
  EXPECT_TRUE(pace.is_due(kNow, kRoomy));
}

TEST(SnapshotPace, WhatRecoveryFoundInTheJournalCounts) {
  SnapshotPace pace(100 * kMega, 100 * kMega);
  EXPECT_TRUE(pace.is_due(kNow, kRoomy));
}

TEST(SnapshotPace, ASmallVolumeGivesTheJournalAnEighthOfWhatIsLeft) {
  SnapshotPace pace(256 * kMega, 0);
  const SnapshotPace::Volume small{.full = false, .free_bytes = 80 * kMega, .segment_bytes = 16 * kMega};
  pace.note(10 * kMega - 1);
  EXPECT_FALSE(pace.is_due(kNow, small));
  pace.note(1);
  EXPECT_TRUE(pace.is_due(kNow, small));
}

TEST(SnapshotPace, OnAFullVolumeItIsDueAtOnceThenWithGrowingPauses) {
  SnapshotPace pace(256 * kMega, 0);
  EXPECT_FALSE(pace.is_due(kNow, kFull)) << "there is nothing new";
  pace.note(1);
  EXPECT_TRUE(pace.is_due(kNow, kFull));
  Time now = kNow;
  for (Duration pause = limits::kSnapshotPressFirst; pause < limits::kSnapshotPressMax; pause = pause * 2) {
    take(pace, kMega, true, now, kFull);
    pace.note(1);
    EXPECT_FALSE(pace.is_due(now + pause - milliseconds(1), kFull)) << pause.ms();
    EXPECT_TRUE(pace.is_due(now + pause, kFull)) << pause.ms();
    now = now + pause;
  }
  for (int i = 0; i < 100; ++i) take(pace, kMega, true, now, kFull);
  pace.note(1);
  EXPECT_TRUE(pace.is_due(now + limits::kSnapshotPressMax, kFull));
  // Another time it begins anew.
  pace.relax();
  EXPECT_TRUE(pace.is_due(now, kFull));
}

TEST(SnapshotPace, AFailedOneIsTriedAgainWithGrowingPausesWhateverCame) {
  SnapshotPace pace(256 * kMega, 0);
  pace.note(256 * kMega);
  Time now = kNow;
  for (Duration pause = limits::kSnapshotRetryFirst; pause < limits::kSnapshotRetryMax; pause = pause * 2) {
    take(pace, kMega, false, now, kRoomy);
    EXPECT_FALSE(pace.is_due(now + pause - milliseconds(1), kRoomy)) << pause.ms();
    EXPECT_TRUE(pace.is_due(now + pause, kRoomy)) << pause.ms();
    now = now + pause;
  }
  for (int i = 0; i < 100; ++i) take(pace, kMega, false, now, kRoomy);
  EXPECT_TRUE(pace.is_due(now + limits::kSnapshotRetryMax, kRoomy));
  take(pace, kMega, true, now, kRoomy);
  EXPECT_FALSE(pace.has_news());
  pace.note(1);
  EXPECT_FALSE(pace.is_due(now, kRoomy)) << "all is well again";
}

TEST(SnapshotPace, ARecordIsWishedForOnlyOnAFullVolumeWithoutNews) {
  SnapshotPace pace(256 * kMega, 0);
  EXPECT_FALSE(pace.may_press(kNow, kRoomy));
  EXPECT_TRUE(pace.may_press(kNow, kFull));
  pace.pressed(kNow);
  EXPECT_FALSE(pace.may_press(kNow, kFull));
  EXPECT_TRUE(pace.may_press(kNow + limits::kSnapshotPressFirst, kFull));
  pace.note(1);
  EXPECT_FALSE(pace.may_press(kNow + limits::kSnapshotPressFirst, kFull));
}

TEST(SnapshotPace, RoomIsMissingBeforeTheNextSnapshotAndASegmentCannotBeWritten) {
  SnapshotPace pace(256 * kMega, 0);
  pace.note(10 * kMega);
  take(pace, 10 * kMega, true, kNow, kRoomy);
  pace.note(5 * kMega);
  EXPECT_EQ(pace.estimate(), 20 * kMega);
  SnapshotPace::Volume volume{.full = false, .free_bytes = 36 * kMega, .segment_bytes = 16 * kMega};
  EXPECT_FALSE(pace.lacks_room(volume, false));
  volume.free_bytes -= 1;
  EXPECT_TRUE(pace.lacks_room(volume, false));
  volume.free_bytes = 40 * kMega;
  EXPECT_TRUE(pace.lacks_room(volume, true)) << "not on and off";
  volume.free_bytes = 41 * kMega;
  EXPECT_FALSE(pace.lacks_room(volume, true));
  volume.free_bytes = UINT64_MAX;
  EXPECT_FALSE(pace.lacks_room(volume, true)) << "what is not known holds nobody up";
}

}  // namespace
}  // namespace gpusched
