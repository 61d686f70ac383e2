#include "host/readers/snapshot_pace.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/storage_limits.h"

namespace gpusched {
namespace {

constexpr uint64_t kMega = 1u << 20;
constexpr uint64_t kRoomy = 1'000'000 * kMega;
constexpr Time kNow{1'000'000'000'000};

SnapshotPace::Options every(uint64_t bytes, uint64_t since = 0) {
  return {.every_bytes = bytes, .segment_bytes = 16 * kMega, .bytes_since = since, .newest_position = 0};
}

void take(SnapshotPace& pace, uint64_t bytes, Time now, bool full, uint64_t position = 1) {
  pace.begun(bytes);
  pace.proven(now, full, position);
}
void fail(SnapshotPace& pace, Time now) {
  pace.begun(kMega);
  pace.failed(now, /*no_room=*/false);
}

TEST(SnapshotPace, IsDueAfterSoMuchJournalAndAsMuchAsTheLastOneWasLarge) {
  SnapshotPace pace(every(100 * kMega));
  pace.note(100 * kMega - 1);
  EXPECT_FALSE(pace.is_due(kNow, false));
  pace.note(1);
  EXPECT_TRUE(pace.is_due(kNow, false));
  take(pace, 300 * kMega, kNow, false);
  pace.note(299 * kMega);
  EXPECT_FALSE(pace.is_due(kNow, false));
  pace.note(kMega);
  EXPECT_TRUE(pace.is_due(kNow, false));
  EXPECT_TRUE(pace.look(kNow, false, kRoomy).take);
}

TEST(SnapshotPace, WhatRecoveryFoundInTheJournalCounts) {
  EXPECT_TRUE(SnapshotPace(every(100 * kMega, 100 * kMega)).is_due(kNow, false));
}

TEST(SnapshotPace, ASmallVolumeGivesTheJournalAnEighthOfWhatIsLeft) {
  SnapshotPace pace(every(256 * kMega));
  pace.look(kNow, false, 80 * kMega);
  pace.note(10 * kMega - 1);
  EXPECT_FALSE(pace.is_due(kNow, false));
  pace.note(1);
  EXPECT_TRUE(pace.is_due(kNow, false));
}

TEST(SnapshotPace, OnAFullVolumeItIsDueAtOnceThenWithGrowingPauses) {
  SnapshotPace pace(every(256 * kMega));
  EXPECT_FALSE(pace.is_due(kNow, true)) << "there is nothing new";
  pace.note(1);
  EXPECT_TRUE(pace.is_due(kNow, true));
  Time now = kNow;
  for (Duration pause = limits::kSnapshotPressFirst; pause < limits::kSnapshotPressMax; pause = pause * 2) {
    take(pace, kMega, now, true);
    pace.note(1);
    EXPECT_FALSE(pace.is_due(now + pause - milliseconds(1), true)) << pause.ms();
    EXPECT_TRUE(pace.is_due(now + pause, true)) << pause.ms();
    now = now + pause;
  }
  for (int i = 0; i < 100; ++i) take(pace, kMega, now, true);
  pace.note(1);
  EXPECT_TRUE(pace.is_due(now + limits::kSnapshotPressMax, true));
  // Another time it begins again.
  pace.look(now, false, kRoomy);
  EXPECT_TRUE(pace.is_due(now, true));
}

TEST(SnapshotPace, AFailedOneIsTriedAgainWithGrowingPausesWhateverCame) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(256 * kMega);
  Time now = kNow;
  for (Duration pause = limits::kSnapshotRetryFirst; pause < limits::kSnapshotRetryMax; pause = pause * 2) {
    fail(pace, now);
    EXPECT_FALSE(pace.look(now + pause - milliseconds(1), false, kRoomy).take) << pause.ms();
    EXPECT_TRUE(pace.look(now + pause, false, kRoomy).take) << pause.ms();
    now = now + pause;
  }
  for (int i = 0; i < 100; ++i) fail(pace, now);
  EXPECT_TRUE(pace.is_due(now + limits::kSnapshotRetryMax, false));
  take(pace, kMega, now, false);
  EXPECT_FALSE(pace.has_news());
  pace.note(1);
  EXPECT_FALSE(pace.is_due(now, false)) << "all is well again";
}

TEST(SnapshotPace, ARecordIsWishedForWhereItWouldShortenTheJournal) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(1);
  take(pace, kMega, kNow, false, 9);
  EXPECT_FALSE(pace.look(kNow, false, kRoomy).press) << "there is free space";
  EXPECT_TRUE(pace.look(kNow, true, kRoomy).press);
  EXPECT_FALSE(pace.look(kNow, true, kRoomy).press) << "once in a while";
  EXPECT_TRUE(pace.look(kNow + limits::kSnapshotPressFirst, true, kRoomy).press);
  pace.note(1);
  EXPECT_FALSE(pace.look(kNow + minutes(1), true, kRoomy).press) << "there is one";
  take(pace, kMega, kNow + minutes(1), true, 10);
  pace.compacted(9);
  EXPECT_FALSE(pace.look(kNow + minutes(3), true, kRoomy).press) << "it is as short as can be";
}

TEST(SnapshotPace, NewWorkWaitsBeforeTheNextSnapshotAndASegmentCannotBeWritten) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(10 * kMega);
  take(pace, 10 * kMega, kNow, false);
  pace.note(5 * kMega);
  EXPECT_EQ(pace.estimate(), 20 * kMega);
  const auto holds = [&](uint64_t free_bytes) {
    pace.look(kNow, false, free_bytes);
    return pace.holds();
  };
  EXPECT_FALSE(holds(36 * kMega));
  EXPECT_TRUE(holds(36 * kMega - 1));
  EXPECT_TRUE(pace.is_due(kNow, false)) << "it is as good as full";
  EXPECT_TRUE(holds(40 * kMega)) << "not on and off";
  EXPECT_FALSE(holds(41 * kMega));
  EXPECT_FALSE(holds(SnapshotPace::kUnknown)) << "what is not known holds nobody up";
}

// What fills the state may be jobs that wait: it shrinks by their being started.
TEST(SnapshotPace, WhatWaitsMayStartWhereOnlyTheEighthIsMissing) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(10 * kMega);
  take(pace, 20 * kMega, kNow, false);
  const auto space = [&](uint64_t free_bytes) {
    pace.look(kNow, false, free_bytes);
    return pace.space();
  };
  EXPECT_EQ(space(37 * kMega), JournalSpace::kOpen);
  EXPECT_EQ(space(36 * kMega - 1), JournalSpace::kReserveOnly);
  EXPECT_EQ(space(37 * kMega), JournalSpace::kNoNewWork);
  pace.note(kMega);
  EXPECT_EQ(space(37 * kMega), JournalSpace::kReserveOnly) << "the next snapshot is larger by now";
  EXPECT_EQ(space(43 * kMega), JournalSpace::kOpen);
}

TEST(SnapshotPace, TheVolumeIsSeenAgainAfterASixteenthOfASegment) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(kMega - 1);
  EXPECT_FALSE(pace.wants_sight());
  pace.note(1);
  EXPECT_TRUE(pace.wants_sight());
  pace.see(18 * kMega - 1);
  EXPECT_FALSE(pace.wants_sight());
  EXPECT_TRUE(pace.holds()) << "no snapshot has room beside a segment";
}

TEST(SnapshotPace, WhereTheNextSnapshotHasNoRoomTheStateHasToShrink) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(50 * kMega);
  pace.begun(56 * kMega);
  pace.failed(kNow, /*no_room=*/true);
  SnapshotPace::Advice advice = pace.look(kNow, true, 32 * kMega);
  EXPECT_EQ(advice.missing_bytes, (63 - 32) * kMega);
  EXPECT_FALSE(advice.take);
  EXPECT_FALSE(advice.press) << "of two snapshots there is none";
  advice = pace.look(kNow + limits::kSnapshotRetryFirst, true, 32 * kMega);
  EXPECT_EQ(advice.missing_bytes, 0u) << "once for each size of the state";
  EXPECT_TRUE(advice.take) << "it is smaller now";
  pace.begun(28 * kMega);
  pace.failed(kNow, /*no_room=*/true);
  EXPECT_EQ(pace.look(kNow, true, 32 * kMega).missing_bytes, 0u) << "there is free space";
}

TEST(SnapshotPace, WhereThereWasNoRoomItIsTriedAgainEachMinute) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(1);
  for (int i = 0; i < 100; ++i) {
    pace.begun(kMega);
    pace.failed(kNow, /*no_room=*/true);
  }
  EXPECT_TRUE(pace.is_due(kNow + limits::kSnapshotPressMax, false));
}

TEST(SnapshotPace, WhenTheJournalIsAsShortAsCanBeTheStateHasToShrink) {
  SnapshotPace pace(every(256 * kMega));
  pace.note(1);
  take(pace, 30 * kMega, kNow, true, 9);
  pace.note(1);
  take(pace, 30 * kMega, kNow, true, 10);
  pace.compacted(9);
  const Time later = kNow + minutes(2);
  const uint64_t comfortable = (30 + 2 * 16) * kMega * 9 / 8;
  const SnapshotPace::Advice advice = pace.look(later, true, kMega);
  EXPECT_FALSE(advice.press);
  EXPECT_EQ(advice.missing_bytes, comfortable - kMega);
  EXPECT_EQ(pace.look(later, true, kMega).missing_bytes, 0u) << "once for each size of the state";
  pace.note(1);
  EXPECT_TRUE(pace.is_due(later + limits::kSnapshotPressFirst, true))
      << "what comes of it does not wait long";
}

}  // namespace
}  // namespace gpusched
