#include <gtest/gtest.h>

#include "base/limits.h"
#include "model/job.h"

namespace gpusched {
namespace {

constexpr Time kSubmitted{5'000'000'000'000};

Time after(int64_t ms) { return kSubmitted + milliseconds(ms); }

TEST(JobHistory, EveryKindOfEntryComesBackAsItWasNoted) {
  const std::vector<JobHistoryEntry> told = {
      {.step = JobStep::kHoldAsked, .at = after(3), .by = "anna@login1"},
      {.step = JobStep::kReleaseAsked, .at = after(4), .by = "anna@login1"},
      {.step = JobStep::kChangeAsked, .at = after(5), .by = "token"},
      {.step = JobStep::kPlaced, .at = after(7), .attempt = 1, .node = NodeId{9}, .members = 4},
      {.step = JobStep::kStarted, .at = after(900), .attempt = 1},
      {.step = JobStep::kRequeueAsked, .at = after(950), .attempt = 1, .by = "token"},
      {.step = JobStep::kAbandoned, .at = after(1'000), .attempt = 1},
      {.step = JobStep::kEnded,
       .at = after(2'000),
       .attempt = 1,
       .cause = EndCause::kExited,
       .exit_code = -3,
       .signal = 9,
       .detail = "a word of the node",
       .usage = {.total = {.peak_memory_bytes = int64_t{7} << 40,
                           .peak_of_process = true,
                           .cpu_time = hours(1'000),
                           .gpu_busy_ms = 5,
                           .gpu_watched_ms = limits::kUsageMax,
                           .peak_gpu_memory_mb = 9'000},
                 .members_unknown = 3}},
      {.step = JobStep::kRequeued, .at = after(2'000), .attempt = 1, .until = after(3'000)},
      {.step = JobStep::kPreempted, .at = after(2'001), .attempt = 1, .until = after(3'001)},
      {.step = JobStep::kHeldByFailure, .at = after(2'002), .attempt = 1, .until = after(3'002)},
      {.step = JobStep::kCancelAsked, .at = after(4'000), .attempt = 1, .by = ""},
      {.step = JobStep::kFinished,
       .at = after(-1),  // A clock that was set back.
       .attempt = 1,
       .state = JobState::kCancelled,
       .reason = JobReason::kCancelled},
  };
  Blob packed;
  for (const JobHistoryEntry& entry : told) packed = with_entry(packed, kSubmitted, entry);
  const JobHistory history = unpack_history(packed, kSubmitted);
  EXPECT_EQ(history.dropped, 0u);
  EXPECT_EQ(history.entries, told);
}

TEST(AttemptUsage, TakesNoRoomWhereNothingIsKnown) {
  EXPECT_TRUE(packed_usage({.total = {}, .members_unknown = 4}).empty());
  EXPECT_EQ(unpack_usage({}), AttemptUsage{});
}

TEST(AttemptUsage, WithoutGpuMemoryIsPackedAsItWasBeforeThatWasMeasured) {
  const std::string bytes("\x05\x01\x00\x02\x03\x04", 6);
  const AttemptUsage usage{
      .total = {.peak_memory_bytes = 5, .peak_of_process = true, .gpu_busy_ms = 2, .gpu_watched_ms = 3},
      .members_unknown = 4};
  EXPECT_EQ(packed_usage(usage).view(), bytes);
  EXPECT_EQ(unpack_usage(bytes), usage);
  AttemptUsage with = usage;
  with.total.peak_gpu_memory_mb = 7;
  EXPECT_EQ(packed_usage(with).view(), bytes + "\x07");
  EXPECT_EQ(unpack_usage(bytes + "\x07"), with);
}

TEST(AttemptUsage, BytesThatNobodyPackedAreUnknown) {
  const std::string whole(packed_usage({.total = {.peak_memory_bytes = 300, .cpu_time = seconds(1)}}).view());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(unpack_usage(std::string_view(whole).substr(0, size)), AttemptUsage{}) << size;
  EXPECT_EQ(unpack_usage(whole + "xy"), AttemptUsage{});
  EXPECT_EQ(unpack_usage(whole + std::string(1, '\0')), AttemptUsage{});
  EXPECT_EQ(unpack_usage("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), AttemptUsage{});
}

TEST(AttemptUsage, MembersAddUpToTheHighestPeakAndAllTheirTime) {
  Usage total;
  total.add({.peak_memory_bytes = 10,
             .cpu_time = seconds(2),
             .gpu_busy_ms = 1,
             .gpu_watched_ms = 2,
             .peak_gpu_memory_mb = 8});
  total.add({.peak_memory_bytes = 30, .peak_of_process = true, .cpu_time = seconds(3)});
  total.add({.peak_memory_bytes = 20, .gpu_busy_ms = 3, .gpu_watched_ms = 4, .peak_gpu_memory_mb = 7});
  EXPECT_EQ(total, (Usage{.peak_memory_bytes = 30,
                          .peak_of_process = true,
                          .cpu_time = seconds(5),
                          .gpu_busy_ms = 4,
                          .gpu_watched_ms = 6,
                          .peak_gpu_memory_mb = 8}));
  for (int i = 0; i < 4; ++i) total.add({.cpu_time = Duration{limits::kUsageMax}});
  EXPECT_EQ(total.cpu_time.ns, limits::kUsageMax);
}

TEST(JobHistory, TheOldestEntriesGoAndAreCounted) {
  Blob packed;
  for (uint32_t attempt = 1; attempt <= limits::kHistoryEntriesMax + 10; ++attempt)
    packed =
        with_entry(packed, kSubmitted, {.step = JobStep::kStarted, .at = after(attempt), .attempt = attempt});
  const JobHistory history = unpack_history(packed, kSubmitted);
  EXPECT_EQ(history.dropped, 10u);
  ASSERT_EQ(history.entries.size(), limits::kHistoryEntriesMax);
  EXPECT_EQ(history.entries.front().attempt, 11u);
  EXPECT_EQ(history.entries.back().attempt, limits::kHistoryEntriesMax + 10);
}

TEST(JobHistory, AnEntryIsSmallAndItsDetailBounded) {
  const auto size_of = [](const JobHistoryEntry& entry) {
    return with_entry({}, kSubmitted, entry).view().size();
  };
  EXPECT_LE(size_of({.step = JobStep::kPlaced,
                     .at = after(86'400'000),
                     .attempt = 1,
                     .node = NodeId{70'000},
                     .members = 1}),
            14u);
  EXPECT_LE(
      size_of({.step = JobStep::kEnded, .at = after(1), .attempt = 1, .detail = std::string(5'000, 'x')}),
      limits::kHistoryDetailMax + 16);
}

TEST(JobHistory, BytesThatNobodyPackedGiveNothing) {
  for (const std::string_view bytes :
       {"\xff", "\x05", "\x00\x01\x7f", "\x00\x02\x01\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    EXPECT_TRUE(unpack_history(Blob(bytes), kSubmitted).entries.empty());
    const Blob more = with_entry(Blob(bytes), kSubmitted, {.step = JobStep::kStarted, .at = after(1)});
    EXPECT_GE(unpack_history(more, kSubmitted).entries.size(), 0u);
  }
}

}  // namespace
}  // namespace gpusched
