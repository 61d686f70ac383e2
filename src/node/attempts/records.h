#pragma once

#include <cstdint>

#include "base/time.h"
#include "node/ports/ports.h"

namespace gpusched::agent {

/// The record of attempts on disk, as the agent writes it: what was appended survives the agent once it was
/// flushed, and the machine once it was synced. While the disk is full nothing that relies on a record may
/// happen. Not thread-safe.
class Records {
 public:
  enum class Flushed : uint8_t {
    kDone,
    kDiskFull,      ///< As at the last call.
    kDiskFilledUp,  ///< Since the last call.
    kDiskHasRoom    ///< Done, for the first time since the disk was full.
  };

  explicit Records(AttemptStore& store) : store_(store) {}

  /// The record's position.
  uint64_t append(const StoreRecord& record);
  Flushed flush(Time now);
  /// When to try again while the disk is full; else kNever.
  Time next_flush() const { return next_flush_; }
  void want_sync() { sync_wanted_ = true; }
  void sync_if_wanted();
  /// Every record up to `position` is durable.
  void on_synced(uint64_t position);
  uint64_t synced_position() const { return synced_position_; }

 private:
  AttemptStore& store_;
  uint64_t synced_position_ = 0;
  bool flush_wanted_ = false;
  bool sync_wanted_ = false;
  bool disk_full_ = false;
  Time next_flush_ = kNever;
};

}  // namespace gpusched::agent
