#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/time.h"
#include "host/readers/observer.h"
#include "host/readers/snapshot_image.h"
#include "host/readers/snapshot_pace.h"
#include "journal/snapshot_store.h"

namespace gpusched {

/// Outcomes of snapshots since the start, for metrics and health.
struct SnapshotStats {
  uint64_t written = 0;     ///< Written and proven.
  uint64_t failed = 0;      ///< Not written: the disk.
  uint64_t unprovable = 0;  ///< Written, and not believed: a defect.
  uint64_t last_sequence = 0;
  uint64_t last_bytes = 0;
  Time last_at;         ///< Monotonic time of the last one; not valid: none was written.
  std::string trouble;  ///< Why the newest try failed; empty: it did not.
};

/// Takes snapshots of the observer's state when SnapshotPace says so. The state is encoded on the observer's
/// thread; a thread of its own writes it, reads it back and proves it. Public members are thread-safe.
class Snapshotter {
 public:
  struct Hooks {
    /// Nothing older than this journal record is needed any more.
    std::function<void(uint64_t position)> committed;
    /// Calls `look` on the observer's thread.
    std::function<void()> ask;
    /// Whether the journal has only its reserve left; cheap.
    std::function<bool()> full;
    /// Returns the free space on the volume; SnapshotPace::kUnknown: not known.
    std::function<uint64_t()> free_bytes;
    /// What has to wait for room from now on. The reason is a sentence.
    std::function<void(JournalSpace space, const std::string& reason)> hold;
    /// Has a record written that changes nothing.
    std::function<void()> press;
    /// Tells that bytes are missing although the journal is as short as it can be: the state has to shrink,
    /// of which a snapshot takes `snapshot_bytes`.
    std::function<void(uint64_t missing, uint64_t snapshot_bytes)> shed;
  };

  Snapshotter(SnapshotStore& store, const Clock& clock, const SnapshotPace::Options& options, Hooks hooks);
  ~Snapshotter();

  /// Starts the thread: from now on hooks are called.
  void start();
  /// For Observer::add_listener.
  void on_changes(const Observer::View& view, const Changes& changes);
  /// Takes a snapshot if one is due; on the observer's thread.
  void look(const Observer::View& view);
  /// Takes a snapshot now if anything came since the last one; on the observer's thread.
  void take(const Observer::View& view);
  /// Waits for what is being written and ends the thread.
  void stop();
  SnapshotStats stats() const;

 private:
  void run();
  void tick(std::unique_lock<std::mutex>& lock);
  /// Looks at the free space, so that a fast writer does not fill the volume between two ticks.
  void see_room();
  void tell_hold(std::unique_lock<std::mutex>& lock, uint64_t free_bytes);
  void write(std::unique_lock<std::mutex>& lock);
  void encode(const Observer::View& view);
  void note_outcome(const SnapshotImage& image, const Result<Unit>& written);
  /// Removes what is superfluous and lets the journal forget.
  void forget_older();

  SnapshotStore& store_;
  const Clock& clock_;
  const Hooks hooks_;
  const uint64_t segment_bytes_;

  std::mutex sight_mutex_;  ///< Taken before the other: what is told is told in the order of what was seen.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  SnapshotPace pace_;
  SnapshotStats stats_;
  std::optional<SnapshotImage> image_;
  JournalSpace told_space_ = JournalSpace::kOpen;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpusched
