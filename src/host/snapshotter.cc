#include "host/snapshotter.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "log/log.h"

namespace gpusched {
namespace {

/// How often the volume is looked at.
constexpr std::chrono::seconds kTick(1);

std::string megabytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MB"; }

}  // namespace

Snapshotter::Snapshotter(SnapshotStore& store, const Clock& clock, SnapshotPace pace, uint64_t segment_bytes,
                         uint64_t last_position, Hooks hooks)
    : store_(store),
      clock_(clock),
      hooks_(std::move(hooks)),
      pace_(pace),
      segment_bytes_(segment_bytes),
      newest_position_(last_position) {}

Snapshotter::~Snapshotter() { stop(); }

void Snapshotter::start() {
  free_bytes_ = hooks_.free_bytes();
  thread_ = std::thread([this] { run(); });
}

void Snapshotter::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// With the mutex held.
SnapshotPace::Volume Snapshotter::volume() const {
  return {.full = holds_ || hooks_.full(), .free_bytes = free_bytes_, .segment_bytes = segment_bytes_};
}

SnapshotStats Snapshotter::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Snapshotter::on_changes(const Observer::View& view, const Changes& changes) {
  {
    const std::lock_guard lock(mutex_);
    pace_.note(changes.payload_bytes);
  }
  look(view);
}

void Snapshotter::look(const Observer::View& view) {
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || stopping_ || !pace_.is_due(clock_.monotonic(), volume())) return;
    busy_ = true;
  }
  encode(view);
}

void Snapshotter::take(const Observer::View& view) {
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || stopping_ || !pace_.has_news()) return;
    busy_ = true;
  }
  encode(view);
}

void Snapshotter::encode(const Observer::View& view) {
  SnapshotImage image = image_of(view.state, view.position);
  {
    const std::lock_guard lock(mutex_);
    pace_.begun(image.bytes);
    image_ = std::move(image);
  }
  wake_.notify_all();
}

void Snapshotter::run() {
  ::pthread_setname_np(::pthread_self(), "snapshots");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, kTick, [this] { return stopping_ || image_.has_value(); });
    if (image_.has_value()) {
      write(lock);
    } else if (stopping_) {
      return;
    } else {
      tick(lock);
    }
  }
}

void Snapshotter::write(std::unique_lock<std::mutex>& lock) {
  const SnapshotImage image = *std::exchange(image_, std::nullopt);
  lock.unlock();
  const Result<Unit> written = write_image(store_, image);
  if (written.ok()) forget_older();
  lock.lock();
  note_outcome(image, written);
  pace_.ended(clock_.monotonic(), written.ok(), volume());
  busy_ = false;
}

void Snapshotter::note_outcome(const SnapshotImage& image, const Result<Unit>& written) {
  const std::string sequence = std::to_string(image.info.last_sequence);
  stats_.trouble = written.ok() ? "" : written.error().message;
  if (written.ok()) {
    stats_.written += 1;
    stats_.last_sequence = image.info.last_sequence;
    stats_.last_bytes = image.bytes;
    newest_position_ = image.info.last_position;
    return log_event(LogLevel::kInfo, "snapshot", "snapshot_written", {}, {{"sequence", sequence}});
  }
  const bool unprovable =
      written.error().code == ErrorCode::kCorrupt || written.error().code == ErrorCode::kVersion;
  if (!unprovable) {
    stats_.failed += 1;
    return log_event(LogLevel::kWarning, "snapshot", "snapshot_failed", {},
                     {{"sequence", sequence}, {"error", written.error().message}});
  }
  stats_.unprovable += 1;
  log_event(LogLevel::kError, "snapshot", "snapshot_unprovable", {},
            {{"sequence", sequence},
             {"error", written.error().message},
             {"means",
              "what was written for a snapshot does not read back as the state: it was thrown away; the "
              "journal and the older snapshot are kept whole, and it is tried again"},
             {"do",
              "check the disk (dmesg); where it is well this is a defect of the program: report it with a "
              "support bundle, and keep a backup"}});
}

void Snapshotter::forget_older() {
  const Result<Unit> pruned = store_.prune();
  if (!pruned.ok())
    log_event(LogLevel::kWarning, "snapshot", "snapshot_not_removed", {},
              {{"error", pruned.error().message}});
  const Result<uint64_t> position = store_.compactable_position();
  if (!position.ok()) {
    return log_event(LogLevel::kWarning, "snapshot", "snapshots_not_listed", {},
                     {{"error", position.error().message}});
  }
  if (*position == 0) return;
  hooks_.committed(*position + 1);
  const std::lock_guard lock(mutex_);
  compacted_position_ = *position;
}

void Snapshotter::tick(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const uint64_t free_bytes = hooks_.free_bytes();
  lock.lock();
  if (busy_ || stopping_) return;
  free_bytes_ = free_bytes;
  const bool held = std::exchange(holds_, pace_.lacks_room(volume(), holds_));
  const SnapshotPace::Volume now_free = volume();
  if (!now_free.full) pace_.relax();
  const Time now = clock_.monotonic();
  const bool due = pace_.is_due(now, now_free);
  // The journal is forgotten up to the older of two snapshots: with one more record the newest becomes the
  // older one.
  const bool may = pace_.may_press(now, now_free);
  const bool press = may && newest_position_ > compacted_position_ + 1;
  // When both are as new as can be it is the state that is too large.
  const uint64_t missing = pace_.missing(now_free);
  const uint64_t snapshot_bytes = stats_.last_bytes;
  const bool shed = may && !press && missing > 0 && snapshot_bytes != shed_bytes_;
  if (may) pace_.pressed(now);
  if (shed) {
    shed_bytes_ = snapshot_bytes;
    pace_.relax();  // What follows from it shall not wait.
  }
  const bool holds = holds_;
  const std::string reason = "the volume has " + megabytes(free_bytes) +
                             " left, and the next snapshot needs up to " + megabytes(pace_.estimate()) +
                             " beside a journal segment of " + megabytes(segment_bytes_);
  lock.unlock();
  if (held != holds) hooks_.hold(holds, reason);
  if (due) hooks_.ask();
  if (press) hooks_.press();
  if (shed) hooks_.shed(missing, snapshot_bytes);
  lock.lock();
}

}  // namespace gpusched
