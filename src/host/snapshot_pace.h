#pragma once

#include <cstdint>

#include "base/time.h"

namespace gpusched {

/// Decides when the next snapshot is due: after enough journal, again and again with growing pauses after one
/// that failed, and at once when the journal has only its reserve left, because only a snapshot lets it
/// forget. Pure; not thread-safe. Times are monotonic ones.
class SnapshotPace {
 public:
  /// What is known of the volume at this moment.
  struct Volume {
    bool full = false;                   ///< Only the journal's reserve is left.
    uint64_t free_bytes = UINT64_MAX;    ///< UINT64_MAX: not known.
    uint64_t segment_bytes = 16u << 20;  ///< That the journal needs to go on.
  };

  /// `every_bytes` of journal are written between two snapshots, at least as much as the last one was large,
  /// and less on a small volume. `bytes_since` the newest snapshot stand in the journal already.
  SnapshotPace(uint64_t every_bytes, uint64_t bytes_since)
      : every_bytes_(every_bytes), bytes_since_(bytes_since) {}

  /// So much was added to the journal.
  void note(uint64_t payload_bytes) { bytes_since_ += payload_bytes; }
  bool has_news() const { return bytes_since_ > 0; }
  bool is_due(Time now, const Volume& volume) const;
  /// One is being taken of everything so far; `bytes` long.
  void begun(uint64_t bytes);
  /// It is there and proven, or it is not and its share of the journal still counts.
  void ended(Time now, bool proven, const Volume& volume);

  /// True when `now` is a moment for a harmless record, so that a snapshot of another position can be taken:
  /// the journal is only forgotten up to the older of two.
  bool may_press(Time now, const Volume& volume) const;
  void pressed(Time now);
  /// The volume has room: the next time that it is full begins without a pause.
  void relax();

  /// How large the next snapshot will be at most, by what is known: small jobs take more of a state than of a
  /// journal.
  uint64_t estimate() const { return last_bytes_ + 2 * (bytes_since_ + pending_bytes_); }
  /// Whether room for the next snapshot and for the journal's next segment is missing: new work must wait
  /// then, or the journal could never be shortened again. Once missing it is so until there is an eighth
  /// more.
  bool lacks_room(const Volume& volume, bool lacked) const;
  /// How much more room a full volume needs before new work can be taken, beside a second segment.
  uint64_t missing(const Volume& volume) const;
  int failures() const { return failures_; }

 private:
  const uint64_t every_bytes_;
  uint64_t bytes_since_;
  uint64_t pending_bytes_ = 0;  ///< Of journal, in the one that is being taken.
  uint64_t last_bytes_ = 0;     ///< Of the newest snapshot.
  int failures_ = 0;            ///< In a row.
  int presses_ = 0;             ///< In a row, on a full volume.
  Time retry_at_;               ///< After a failure;
  Time press_at_;               ///< on a full volume.
};

}  // namespace gpusched
