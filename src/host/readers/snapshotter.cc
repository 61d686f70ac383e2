#include "host/readers/snapshotter.h"

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

Snapshotter::Snapshotter(SnapshotStore& store, const Clock& clock, const SnapshotPace::Options& options,
                         Hooks hooks)
    : store_(store),
      clock_(clock),
      hooks_(std::move(hooks)),
      segment_bytes_(options.segment_bytes),
      pace_(options) {}

Snapshotter::~Snapshotter() { stop(); }

void Snapshotter::start() {
  {
    std::unique_lock lock(mutex_);
    tick(lock);
  }
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

SnapshotStats Snapshotter::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Snapshotter::on_changes(const Observer::View& view, const Changes& changes) {
  bool unseen = false;
  {
    const std::lock_guard lock(mutex_);
    pace_.note(changes.payload_bytes);
    unseen = pace_.wants_sight();
  }
  if (unseen) see_room();
  look(view);
}

void Snapshotter::look(const Observer::View& view) {
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || stopping_ || !pace_.is_due(clock_.monotonic(), hooks_.full())) return;
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
  busy_ = false;
}

void Snapshotter::note_outcome(const SnapshotImage& image, const Result<Unit>& written) {
  const std::string sequence = std::to_string(image.info.last_sequence);
  stats_.trouble = written.ok() ? "" : written.error().message;
  if (written.ok()) {
    stats_.written += 1;
    stats_.last_sequence = image.info.last_sequence;
    stats_.last_bytes = image.bytes;
    stats_.last_at = clock_.monotonic();
    pace_.proven(clock_.monotonic(), hooks_.full(), image.info.last_position);
    return log_event(LogLevel::kInfo, "snapshot", "snapshot_written", {}, {{"sequence", sequence}});
  }
  pace_.failed(clock_.monotonic(), written.error().code == ErrorCode::kStorageFull);
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
              "a snapshot did not read back as the state and was discarded; the journal and the older "
              "snapshot are kept, and another snapshot will be written"},
             {"do",
              "check the disk (dmesg); if the disk has no errors, this is a bug of the program: report it "
              "with a support bundle, and keep a backup"}});
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
  pace_.compacted(*position);
}

void Snapshotter::see_room() {
  const std::lock_guard one_at_a_time(sight_mutex_);
  const uint64_t free_bytes = hooks_.free_bytes();
  std::unique_lock lock(mutex_);
  pace_.see(free_bytes);
  tell_hold(lock, free_bytes);
}

void Snapshotter::tell_hold(std::unique_lock<std::mutex>& lock, uint64_t free_bytes) {
  const JournalSpace space = pace_.space();
  if (std::exchange(told_space_, space) == space) return;
  std::string reason = "the volume has " + megabytes(free_bytes) +
                       " left, but the next snapshot needs up to " + megabytes(pace_.estimate()) +
                       " in addition to a journal segment of " + megabytes(segment_bytes_);
  if (space == JournalSpace::kNoNewWork) reason += ", and an eighth more has to be free";
  lock.unlock();
  hooks_.hold(space, reason);
  lock.lock();
}

void Snapshotter::tick(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::unique_lock one_at_a_time(sight_mutex_);
  const uint64_t free_bytes = hooks_.free_bytes();
  lock.lock();
  if (busy_ || stopping_) return;
  const SnapshotPace::Advice advice = pace_.look(clock_.monotonic(), hooks_.full(), free_bytes);
  const uint64_t snapshot_bytes = pace_.last_bytes();
  tell_hold(lock, free_bytes);
  lock.unlock();
  one_at_a_time.unlock();
  if (advice.take) hooks_.ask();
  if (advice.press) hooks_.press();
  if (advice.missing_bytes > 0) hooks_.shed(advice.missing_bytes, snapshot_bytes);
  lock.lock();
}

}  // namespace gpusched
