#pragma once

#include <map>
#include <string>
#include <vector>

#include "host/core/recovery.h"
#include "journal/disk/disk.h"

namespace gpusched {

/// Looks whether a data folder's snapshots and its journal make the same state, as a start would and more:
/// the journal is replayed from the oldest snapshot that can be used, and each newer one must be what comes
/// of it. Reads only; takes no lock. Not thread-safe.
class FolderCheck {
 public:
  /// Reads the snapshots in `dir`, which need not be there.
  FolderCheck(Disk& disk, const std::string& dir);

  /// To be called with every record that the journal has, in order. kCorrupt, kVersion: no start gets past
  /// it.
  Result<Unit> visit(const JournalRecord& record);

  /// Faults of snapshots; a sentence each. The next start passes such snapshots over.
  const std::vector<std::string>& refused() const { return refused_; }
  uint64_t snapshots() const { return snapshots_; }
  /// Records that were replayed.
  uint64_t replayed() const { return report_.replayed_records; }
  /// The state's running digest behind the last record.
  uint64_t digest() const { return state_.digest.value(); }

 private:
  struct Stored {
    std::string path;
    uint64_t digest = 0;
  };
  void compare();

  State state_;
  uint64_t position_ = 0;             ///< Position of the last record in `state_`.
  std::map<uint64_t, Stored> newer_;  ///< Snapshots that the replay has to meet, by position.
  std::vector<std::string> refused_;
  uint64_t snapshots_ = 0;
  RecoveryReport report_;
  Events events_;
};

}  // namespace gpusched
