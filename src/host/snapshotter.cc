#include "host/snapshotter.h"

#include <algorithm>

#include "log/log.h"

namespace gpusched {

Snapshotter::Snapshotter(SnapshotStore& store, uint64_t every_bytes, uint64_t bytes_since,
                         std::function<void(uint64_t)> committed)
    : store_(store),
      every_bytes_(every_bytes),
      committed_(std::move(committed)),
      bytes_since_(bytes_since),
      thread_([this] { run(); }) {}

Snapshotter::~Snapshotter() { stop(); }

void Snapshotter::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Snapshotter::on_changes(const Observer::View& view, const Changes& changes) {
  bytes_since_ += changes.payload_bytes;
  // At least as much journal as the last snapshot was large: writing stays in proportion to work.
  if (bytes_since_ >= std::max(every_bytes_, last_size_)) take(view);
}

void Snapshotter::take(const Observer::View& view) {
  if (bytes_since_ == 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || stopping_) return;  // The next change asks again.
    busy_ = true;
  }
  SnapshotImage job = image_of(view.state, view.position);
  bytes_since_ = 0;
  last_size_ = job.bytes;
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
  }
  wake_.notify_all();
}

void Snapshotter::run() {
  while (true) {
    std::optional<SnapshotImage> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || job_.has_value(); });
      if (!job_.has_value()) return;
      job = std::exchange(job_, std::nullopt);
    }
    const Result<Unit> written = write(*job);
    if (!written.ok()) {
      // The journal still has everything; the next one may succeed.
      log_event(LogLevel::kWarning, "snapshot", "snapshot_failed", {}, {{"error", written.error().message}});
    }
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
}

Result<Unit> Snapshotter::write(const SnapshotImage& job) {
  const Result<Unit> stored = write_image(store_, job);
  if (!stored.ok()) return stored;
  const Result<Unit> pruned = store_.prune();
  if (!pruned.ok()) return pruned;
  const Result<uint64_t> position = store_.compactable_position();
  if (!position.ok()) return position.error();
  log_event(LogLevel::kInfo, "snapshot", "snapshot_written", {},
            {{"sequence", std::to_string(job.info.last_sequence)}});
  if (*position > 0) committed_(*position + 1);
  return Unit{};
}

}  // namespace gpusched
