#include "host/readers/snapshot_pace.h"

#include <algorithm>

#include "base/storage_limits.h"

namespace gpusched {
namespace {

constexpr int kDoublingsMax = 30;

/// `first`, doubled `times` times, at most `most`.
Duration doubled(Duration first, int times, Duration most) {
  Duration pause = first;
  for (int i = 0; i < times && pause < most; ++i) pause = pause * 2;
  return std::min(pause, most);
}

}  // namespace

bool SnapshotPace::is_due(Time now, bool journal_full) const {
  if (!has_news()) return false;
  if (failures_ > 0) return now >= retry_at_;
  if (is_full(journal_full)) return now >= press_at_;
  uint64_t threshold = std::max(options_.every_bytes, last_bytes_);
  // On a small volume, or one that others fill, the journal takes an eighth of what is left before it is
  // shortened.
  if (free_bytes_ != kUnknown)
    threshold = std::min(threshold, std::max(free_bytes_ / 8, limits::kSnapshotEveryMin));
  return bytes_since_ >= threshold;
}

void SnapshotPace::begun(uint64_t bytes) {
  pending_bytes_ = bytes_since_;
  bytes_since_ = 0;
  last_bytes_ = bytes;
}

void SnapshotPace::proven(Time now, bool journal_full, uint64_t position) {
  pending_bytes_ = 0;
  failures_ = 0;
  newest_position_ = position;
  if (is_full(journal_full)) pause(now);
}

void SnapshotPace::failed(Time now, bool no_room) {
  bytes_since_ += pending_bytes_;
  pending_bytes_ = 0;
  no_room_ = no_room;
  const Duration most = no_room ? limits::kSnapshotPressMax : limits::kSnapshotRetryMax;
  retry_at_ = now + doubled(limits::kSnapshotRetryFirst, failures_, most);
  failures_ = std::min(failures_ + 1, kDoublingsMax);
}

void SnapshotPace::pause(Time now) {
  press_at_ = now + doubled(limits::kSnapshotPressFirst, pauses_, limits::kSnapshotPressMax);
  pauses_ = std::min(pauses_ + 1, kDoublingsMax);
}

void SnapshotPace::see(uint64_t free_bytes) {
  unseen_bytes_ = 0;
  free_bytes_ = free_bytes;
  short_ = free_bytes < needed();
  holds_ = short_ || (holds_ && free_bytes < needed() + needed() / 8);  // Not on and off.
}

// How much the state has to shrink by.
uint64_t SnapshotPace::missing() const {
  if (free_bytes_ == kUnknown || last_bytes_ == 0 || last_bytes_ == shed_bytes_) return 0;
  const uint64_t needed = failures_ > 0 ? last_bytes_ : estimate() + 2 * options_.segment_bytes;
  const uint64_t comfortable = needed + needed / 8;
  return comfortable - std::min(comfortable, free_bytes_);
}

SnapshotPace::Advice SnapshotPace::look(Time now, bool journal_full, uint64_t free_bytes) {
  see(free_bytes);
  const bool full = is_full(journal_full);
  if (!full) {
    pauses_ = 0;
    press_at_ = {};
  }
  Advice advice{.take = is_due(now, journal_full)};
  if (!full || (failures_ > 0 && !no_room_)) return advice;
  if (failures_ == 0) {
    if (has_news() || now < press_at_) return advice;
    advice.press = newest_position_ > compacted_position_ + 1;
    pause(now);
    if (advice.press) return advice;
  }
  advice.missing_bytes = missing();
  if (advice.missing_bytes == 0) return advice;
  shed_bytes_ = last_bytes_;
  // Nothing that follows from it may wait.
  advice.take = false;
  pauses_ = 0;
  press_at_ = {};
  retry_at_ = now + limits::kSnapshotRetryFirst;
  return advice;
}

}  // namespace gpusched
