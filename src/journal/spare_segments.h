#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "journal/disk/disk.h"
#include "journal/journal.h"

namespace gpusched {

/// A segment file of zero bytes under its final name, with room on the disk for all of them.
struct SpareSegment {
  uint64_t index = 0;
  std::string path;
  uint64_t bytes = 0;
  std::unique_ptr<DiskFile> file;
};

/// Prepares zero-filled segments ahead of need, so that a full disk shows here and not in a commit, and
/// removes the ones that compaction gave up. With `background` a thread of its own does both; without, the
/// caller's thread does them inside `take`, `discard` and `maintain` (tests want one order of events).
///
/// `reserve` segments are kept for ends, cancels and releases: while the disk has room, `take` never hands
/// them out but waits for the next one. When none can be made, `space` is kReserveOnly and `take` hands out
/// the reserve; it goes back to kOpen by itself once all are there again.
class SpareSegments {
 public:
  struct Options {
    std::string dir;
    uint64_t segment_bytes = 0;
    uint32_t reserve = 1;  ///< Segments; one more is always kept ready.
    bool background = true;
    Duration retry = seconds(1);     ///< Interval of retries on a full disk and of failed removals.
    const DiskLock* lock = nullptr;  ///< Looked at before a file is made; null: the folder is surely ours.
  };

  /// `ready` are the prepared segments found on disk, by index; new ones get indexes from `next_index` on.
  SpareSegments(Disk& disk, Options options, uint64_t next_index, std::deque<SpareSegment> ready);
  ~SpareSegments();
  SpareSegments(const SpareSegments&) = delete;
  SpareSegments& operator=(const SpareSegments&) = delete;

  /// The prepared segment with the lowest index. kStorageFull: none is left, and the disk is full.
  Result<SpareSegment> take();
  /// Says what `take` would, and leaves the segment.
  Result<Unit> check_room();
  /// Returns when the reserve is there or cannot be, so that `space` is not too hopeful after a start.
  void wait_for_reserve();
  /// Removes these files, now or later: one that cannot be removed is tried again, and may still be there
  /// after a restart.
  void discard(std::vector<std::string> paths);
  /// Removes and prepares what is due; with a thread, wakes it instead.
  void maintain();

  JournalSpace space() const { return space_.load(std::memory_order_relaxed); }  ///< Any thread may ask.
  /// Why the space is what it is; empty when it is open. Any thread may ask.
  std::string reason() const;
  uint32_t ready() const;

 private:
  void run();
  /// Returns when a segment may be taken, or none can be had: kStorageFull.
  Result<Unit> wait_for_one(std::unique_lock<std::mutex>& lock);
  /// Retries failed removals.
  void retry_removals();
  /// Does one step of work with the mutex released meanwhile. False: nothing is due.
  bool step(std::unique_lock<std::mutex>& lock, bool retry_failed);
  Result<SpareSegment> make(uint64_t index);
  Result<Unit> fill(DiskFile& file);
  bool short_of_spares() const { return ready_.size() < options_.reserve + 1; }

  Disk& disk_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable work_;  ///< The thread waits here.
  std::condition_variable done_;  ///< `take` waits here.
  std::deque<SpareSegment> ready_;
  std::deque<std::string> discarded_;
  std::deque<std::string> undeleted_;  ///< Removals that failed; they wait for the next try.
  uint64_t next_index_;
  std::optional<Error> failure_;  ///< Error of the last try to prepare.
  bool retry_now_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<JournalSpace> space_{JournalSpace::kOpen};
  std::thread thread_;
};

/// The name of a segment's file, such as `0000000000000007.seg`; `parse_segment_name` is its inverse.
std::string segment_name(uint64_t index);
std::optional<uint64_t> parse_segment_name(const std::string& name);

}  // namespace gpusched
