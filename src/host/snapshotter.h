#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "host/observer.h"
#include "host/snapshot_image.h"
#include "journal/snapshot_store.h"

namespace gpusched {

/// Takes snapshots of the observer's state when enough journal has come since the last one. The state is
/// encoded on the observer's thread, written by a thread of its own. Public members are thread-safe.
class Snapshotter {
 public:
  /// `bytes_since`: of the journal behind the newest snapshot, as recovery found it, so that crashes do not
  /// make the tail grow. `committed` is told up to which journal record nothing older is needed any more.
  Snapshotter(SnapshotStore& store, uint64_t every_bytes, uint64_t bytes_since,
              std::function<void(uint64_t position)> committed);
  ~Snapshotter();

  /// For Observer::add_listener.
  void on_changes(const Observer::View& view, const Changes& changes);
  /// Takes a snapshot now if anything came since the last one; on the observer's thread.
  void take(const Observer::View& view);
  /// Waits for what is being written and ends the thread.
  void stop();

 private:
  void run();
  Result<Unit> write(const SnapshotImage& job);

  SnapshotStore& store_;
  const uint64_t every_bytes_;
  std::function<void(uint64_t)> committed_;
  uint64_t bytes_since_;    ///< Observer's thread only.
  uint64_t last_size_ = 0;  ///< Of the newest snapshot; the observer's thread only.

  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<SnapshotImage> job_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpusched
