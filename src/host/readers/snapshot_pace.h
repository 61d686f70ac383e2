#pragma once

#include <cstdint>

#include "base/time.h"
#include "journal/journal.h"

namespace gpusched {

/// Decides when the next snapshot is due: after enough journal, again and again with growing pauses after one
/// that failed, and at once when the volume is full, because only a snapshot lets the journal be shortened.
/// It also says when new work has to wait for room, and what would make some. Pure; not thread-safe. Times
/// are monotonic ones.
class SnapshotPace {
 public:
  static constexpr uint64_t kUnknown = UINT64_MAX;

  struct Options {
    /// Bytes of journal between two snapshots; at least as much as the last one was large, and less on a
    /// small volume.
    uint64_t every_bytes = 0;
    uint64_t segment_bytes = 0;    ///< Bytes that the journal needs to go on.
    uint64_t bytes_since = 0;      ///< Bytes of journal behind the newest snapshot already.
    uint64_t newest_position = 0;  ///< Position of that snapshot; 0: there is none.
  };
  explicit SnapshotPace(const Options& options)
      : options_(options), bytes_since_(options.bytes_since), newest_position_(options.newest_position) {}

  /// Notes bytes that were added to the journal.
  void note(uint64_t payload_bytes) {
    bytes_since_ += payload_bytes;
    unseen_bytes_ += payload_bytes;
  }
  /// Whether so much was added since the volume was last seen that it has to be seen again: whoever writes
  /// fast fills it between two looks.
  bool wants_sight() const { return unseen_bytes_ >= options_.segment_bytes / 16; }
  /// Reports the free space on the volume; kUnknown holds nobody up.
  void see(uint64_t free_bytes);
  /// Whether anything came since the newest snapshot.
  bool has_news() const { return bytes_since_ > 0; }
  /// `journal_full`: the journal has only its reserve left.
  bool is_due(Time now, bool journal_full) const;
  /// One is being taken of everything so far; `bytes` long.
  void begun(uint64_t bytes);
  /// It is there and proven, and stands for the journal up to `position`.
  void proven(Time now, bool journal_full, uint64_t position);
  /// It is not, and its share of the journal still counts. `no_room`: because the volume is full.
  void failed(Time now, bool no_room);
  /// The journal may forget what is before this record.
  void compacted(uint64_t position) { compacted_position_ = position; }

  /// Advice for now. To be asked each second or so, but not while a snapshot is being taken.
  struct Advice {
    bool take = false;  ///< A snapshot is due.
    /// A record is to be written that changes nothing: the journal is shortened up to the older of two
    /// snapshots, and with one record more the newest can become the older one.
    bool press = false;
    /// Not 0: both are as new as can be, or the next one has no room, so it is the state that is too large.
    /// So much room is missing.
    uint64_t missing_bytes = 0;
  };
  /// `free_bytes` on the volume; kUnknown holds nobody up.
  Advice look(Time now, bool journal_full, uint64_t free_bytes);

  /// Whether room for the next snapshot and for the journal's next segment was missing at the last look: new
  /// work must wait then, or the journal could never be shortened again.
  bool holds() const { return holds_; }
  /// The same for starts of what waits already: they may go on where room is missing only for new work, which
  /// has to wait for a little more. What fills the state may be nothing but jobs that wait.
  JournalSpace space() const {
    if (!holds_) return JournalSpace::kOpen;
    return short_ ? JournalSpace::kReserveOnly : JournalSpace::kNoNewWork;
  }
  /// How large the next snapshot will be at most, by what is known: small jobs take more of a state than of a
  /// journal.
  uint64_t estimate() const { return last_bytes_ + 2 * (bytes_since_ + pending_bytes_); }
  uint64_t last_bytes() const { return last_bytes_; }
  int failures() const { return failures_; }

 private:
  bool is_full(bool journal_full) const { return journal_full || holds_; }
  uint64_t needed() const { return estimate() + options_.segment_bytes; }
  uint64_t missing() const;
  void pause(Time now);

  const Options options_;
  uint64_t bytes_since_;
  uint64_t pending_bytes_ = 0;  ///< Bytes of journal in the one that is being taken.
  uint64_t unseen_bytes_ = 0;   ///< Bytes of journal since the volume was last seen.
  uint64_t last_bytes_ = 0;     ///< Size of the newest snapshot.
  uint64_t newest_position_;
  uint64_t compacted_position_ = 0;
  uint64_t free_bytes_ = kUnknown;  ///< At the last look.
  uint64_t shed_bytes_ = 0;         ///< `last_bytes_` when the state was last found too large.
  bool holds_ = false;
  bool short_ = false;    ///< Less is free than is needed; else what is missing is the eighth above that.
  bool no_room_ = false;  ///< For the newest snapshot, which failed.
  int failures_ = 0;      ///< In a row.
  int pauses_ = 0;        ///< In a row, on a full volume.
  Time retry_at_;         ///< Time of the next try after a failure.
  Time press_at_;         ///< Time of the next snapshot on a full volume.
};

}  // namespace gpusched
