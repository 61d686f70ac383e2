#include "host/core/standby.h"

#include <pthread.h>

#include <utility>

#include "host/core/data_folder.h"
#include "host/readers/snapshot_image.h"
#include "log/log.h"

namespace gpusched {
namespace {

/// Records that wait, in bytes: behind that, reading the journal again is no slower.
constexpr std::size_t kWaitingBytesMax = std::size_t{256} << 20;

}  // namespace

Result<std::unique_ptr<Standby>> Standby::open(const HostOptions& options, SharedJournal& journal,
                                               Hooks hooks) {
  Result<DataFolder> folder = open_data_folder(options, &journal);
  if (!folder.ok()) return folder.error();
  std::unique_ptr<Standby> made(new Standby(options, std::move(hooks), std::move(folder->snapshots)));
  made->state_ = std::move(folder->recovered);
  made->state_.copy.reset();  // It would grow old.
  made->report_ = std::move(folder->report);
  made->bytes_since_ = made->report_.replayed_bytes;
  made->thread_ = std::thread([standby = made.get()] { standby->run(); });
  return made;
}

Standby::~Standby() { end(); }

void Standby::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Standby::follow(const JournalRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) return;
    if (waiting_bytes_ + record.payload.size() > kWaitingBytesMax) {
      given_up_ = true;
      waiting_.clear();
      return;
    }
    waiting_bytes_ += record.payload.size();
    waiting_.push_back({.record = record, .payload = std::string(record.payload)});
  }
  wake_.notify_one();
}

std::optional<Standby::Warm> Standby::take() {
  end();
  if (given_up_) return std::nullopt;
  report_.last_sequence = state_.state.last.sequence;
  report_.last_position = state_.position;
  report_.digest = state_.state.digest.value();
  report_.waiting_jobs = state_.state.waiting_count();
  report_.replayed_bytes = bytes_since_;
  return Warm{.recovered = std::move(state_), .report = std::move(report_)};
}

void Standby::run() {
  ::pthread_setname_np(::pthread_self(), "standby");
  while (true) {
    std::optional<Record> next;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= next->payload.size();
    }
    if (!apply(*next)) return;
    if (bytes_since_ >= snapshot_bytes_) take_snapshot();
  }
}

bool Standby::apply(Record& next) {
  next.record.payload = next.payload;
  if (next.record.position <= state_.position) return true;  // The start has read it.
  const Result<Unit> applied = replay(state_.state, next.record, report_, events_);
  if (applied.ok()) {
    state_.position = next.record.position;
    bytes_since_ += next.payload.size();
    return true;
  }
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    waiting_.clear();
  }
  hooks_.differs(applied.error());
  return false;
}

/// Records wait meanwhile.
void Standby::take_snapshot() {
  const SnapshotImage image = image_of(state_.state, state_.position);
  Result<Unit> done = write_image(*store_, image);
  bytes_since_ = 0;  // A failed one is tried again when as much more has come.
  if (done.ok()) done = store_->prune();
  if (!done.ok()) {
    log_event(LogLevel::kError, "snapshot", "snapshot_failed", {}, {{"error", done.error().message}});
    return;
  }
  report_.snapshot_sequence = image.info.last_sequence;
  report_.snapshot_position = image.info.last_position;
  log_event(LogLevel::kInfo, "snapshot", "snapshot_written", {}, {{"sequence", image.info.last_sequence}});
  const Result<uint64_t> compactable = store_->compactable_position();
  if (compactable.ok() && *compactable > 0) hooks_.committed(*compactable + 1);
}

}  // namespace gpusched
