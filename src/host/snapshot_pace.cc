#include "host/snapshot_pace.h"

#include <algorithm>

#include "base/limits.h"
#include "base/storage_limits.h"

namespace gpusched {
namespace {

/// `first`, doubled `times` times, at most `most`.
Duration doubled(Duration first, int times, Duration most) {
  Duration pause = first;
  for (int i = 0; i < times && pause < most; ++i) pause = pause * 2;
  return std::min(pause, most);
}

}  // namespace

bool SnapshotPace::is_due(Time now, const Volume& volume) const {
  if (!has_news()) return false;
  if (failures_ > 0) return now >= retry_at_;
  if (volume.full) return now >= press_at_;
  uint64_t threshold = std::max(every_bytes_, last_bytes_);
  // On a small volume, or one that others fill, the journal takes an eighth of what is left before it is
  // shortened.
  if (volume.free_bytes != UINT64_MAX)
    threshold = std::min(threshold, std::max(volume.free_bytes / 8, limits::kSnapshotEveryMin));
  return bytes_since_ >= threshold;
}

void SnapshotPace::begun(uint64_t bytes) {
  pending_bytes_ = bytes_since_;
  bytes_since_ = 0;
  last_bytes_ = bytes;
}

void SnapshotPace::ended(Time now, bool proven, const Volume& volume) {
  if (proven) {
    failures_ = 0;
  } else {
    bytes_since_ += pending_bytes_;
    retry_at_ = now + doubled(limits::kSnapshotRetryFirst, failures_, limits::kSnapshotRetryMax);
    failures_ = std::min(failures_ + 1, 30);
  }
  pending_bytes_ = 0;
  if (volume.full) pressed(now);
}

bool SnapshotPace::may_press(Time now, const Volume& volume) const {
  return volume.full && failures_ == 0 && !has_news() && now >= press_at_;
}

void SnapshotPace::pressed(Time now) {
  press_at_ = now + doubled(limits::kSnapshotPressFirst, presses_, limits::kSnapshotPressMax);
  presses_ = std::min(presses_ + 1, 30);
}

void SnapshotPace::relax() {
  presses_ = 0;
  press_at_ = {};
}

uint64_t SnapshotPace::missing(const Volume& volume) const {
  const uint64_t needed = estimate() + 2 * volume.segment_bytes;
  const uint64_t comfortable = needed + needed / 8;
  return volume.free_bytes >= comfortable ? 0 : comfortable - volume.free_bytes;
}

bool SnapshotPace::lacks_room(const Volume& volume, bool lacked) const {
  if (volume.free_bytes == UINT64_MAX) return false;
  const uint64_t needed = estimate() + volume.segment_bytes;
  return volume.free_bytes < (lacked ? needed + needed / 8 : needed);
}

}  // namespace gpusched
