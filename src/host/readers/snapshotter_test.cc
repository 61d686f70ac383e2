#include "host/readers/snapshotter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/check.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "host/core/system_clock.h"
#include "journal/disk/memory_disk.h"

namespace gpusched {
namespace {

constexpr const char* kDir = "snapshots";
constexpr uint64_t kMuch = 1'000'000;  ///< Size of journal that is more than any snapshot here is large.
constexpr Time kBegin{1'750'000'000'000'000'000};

/// A snapshotter over a disk in memory, driven by hand in place of the observer.
class SnapshotterTest : public ::testing::Test {
 protected:
  SnapshotterTest() : store_(*SnapshotStore::open(kDir, &disk_)) {}

  void start(uint64_t every_bytes) {
    Snapshotter::Hooks hooks{.committed = [this](uint64_t position) { compacted_ = position; },
                             .ask =
                                 [this] {
                                   asked_ += 1;
                                   asked_.notify_all();
                                 },
                             .full = [this] { return full_.load(); },
                             .free_bytes = [this] { return free_bytes_.load(); },
                             .hold =
                                 [this](JournalSpace space, const std::string&) {
                                   held_ = space != JournalSpace::kOpen;
                                   held_.notify_all();
                                 },
                             .press =
                                 [this] {
                                   pressed_ += 1;
                                   pressed_.notify_all();
                                 }};
    hooks.shed = [this](uint64_t missing, uint64_t) { missing_ = missing; };
    const SnapshotPace::Options options{.every_bytes = every_bytes, .segment_bytes = 1'000};
    snapshotter_ = std::make_unique<Snapshotter>(*store_, clock_, options, hooks);
    snapshotter_->start();
  }
  /// One more command, of so many bytes of journal.
  void change(uint64_t bytes) {
    Events events;
    const Stamp stamp{.sequence = state_.last.sequence + 1,
                      .at = kBegin + seconds(static_cast<int64_t>(++position_))};
    apply(state_, CreateTenant{.name = "tenant-" + std::to_string(position_)}, stamp, events);
    tell(bytes);
  }
  void tell(uint64_t bytes) {
    snapshotter_->on_changes(
        view(),
        {.events = {}, .last = state_.last, .position = position_, .payload_bytes = bytes, .reasons = {}});
  }
  Observer::View view() { return {.state = state_, .reasons = reasons_, .position = position_}; }
  /// Waits until so many snapshots have ended, well or not.
  SnapshotStats ended(uint64_t count) {
    while (true) {
      const SnapshotStats stats = snapshotter_->stats();
      if (stats.written + stats.failed + stats.unprovable >= count) return stats;
      std::this_thread::yield();
    }
  }

  SystemClock clock_;
  MemoryDisk disk_;
  std::unique_ptr<SnapshotStore> store_;
  State state_;
  std::vector<WaitReason> reasons_;
  uint64_t position_ = 0;
  std::atomic<uint64_t> compacted_{0};
  std::atomic<int> asked_{0};
  std::atomic<int> pressed_{0};
  std::atomic<uint64_t> missing_{0};
  std::atomic<bool> full_{false};
  std::atomic<bool> held_{false};
  std::atomic<uint64_t> free_bytes_{UINT64_MAX};
  std::unique_ptr<Snapshotter> snapshotter_;
};

TEST_F(SnapshotterTest, AnUnprovableSnapshotIsThrownAwayToldAndTriedAgain) {
  start(100);
  change(kMuch);
  ASSERT_EQ(ended(1).written, 1u);
  // A state that the encoder writes and the decoder refuses.
  state_.last.at = limits::kTimeMax + limits::kSettingMax + seconds(1);
  position_ += 1;
  tell(kMuch);
  const SnapshotStats stats = ended(2);
  EXPECT_EQ(stats.unprovable, 1u);
  EXPECT_NE(stats.trouble, "");
  EXPECT_EQ(disk_.list(kDir)->size(), 1u) << "the older one is untouched, and nothing else is there";
  EXPECT_EQ(compacted_, 0u);
  // It is asked for again, although nothing comes any more; and is well when the state is.
  asked_.wait(0);
  state_.last.at = kBegin + seconds(100);
  snapshotter_->look(view());
  EXPECT_EQ(ended(3).written, 2u);
  EXPECT_EQ(snapshotter_->stats().trouble, "");
}

TEST_F(SnapshotterTest, AFullDiskIsNoDefect) {
  start(100);
  disk_.fail(MemoryDisk::Call::kWrite, ErrorCode::kStorageFull);
  change(kMuch);
  const SnapshotStats stats = ended(1);
  EXPECT_EQ(stats.failed, 1u);
  EXPECT_EQ(stats.unprovable, 0u);
}

TEST_F(SnapshotterTest, OnAFullJournalTwoSnapshotsMakeRoomThoughNobodyAsksForAnything) {
  start(1'000'000);
  change(1);
  change(1);
  full_ = true;
  asked_.wait(0);
  snapshotter_->look(view());
  ASSERT_EQ(ended(1).written, 1u);
  EXPECT_EQ(compacted_, 0u) << "one is not enough";
  pressed_.wait(0);
  const int asked = asked_;
  change(1);  // The snapshot was pressed for; maybe before its time.
  if (snapshotter_->stats().written == 1) {
    asked_.wait(asked);
    snapshotter_->look(view());
  }
  ASSERT_EQ(ended(2).written, 2u);
  EXPECT_EQ(compacted_, 3u) << "the journal is kept from the record behind the older one on";
}

TEST_F(SnapshotterTest, NewWorkWaitsWhileTheNextSnapshotHasNoRoom) {
  start(1'000'000);
  change(1'000);
  free_bytes_ = 2'999;
  held_.wait(false);
  EXPECT_TRUE(held_);
  free_bytes_ = 10'000;
  held_.wait(true);
  EXPECT_FALSE(held_);
}

TEST_F(SnapshotterTest, WhoWritesFastIsHeldUpBeforeTheNextTick) {
  start(1'000'000);
  free_bytes_ = 2'999;
  change(1'000);
  EXPECT_TRUE(held_) << "by what was just written";
}

}  // namespace
}  // namespace gpusched
