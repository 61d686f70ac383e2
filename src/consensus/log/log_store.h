#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "consensus/core/values.h"

namespace gpusched::consensus {

/// Whose log a disk holds. Written once, when the log is made.
struct Identity {
  uint64_t cluster = 0;  ///< The group's random number.
  uint64_t replica = 0;  ///< The member's id.
  uint64_t store = 0;    ///< This disk's random number: an empty disk gets another one.

  friend bool operator==(const Identity&, const Identity&) = default;
};

/// Everything that a disk holds of a replica.
struct StoredLog {
  Identity identity;
  HardState hard_state;
  Snapshot snapshot;           ///< Index 0: none was made; its members are those of the group's beginning.
  std::vector<Entry> entries;  ///< In order; some of them may lie before the snapshot.
};

/// The disk of one replica. Not thread-safe. A failed call leaves the durable state unknown: the caller must
/// end the process, never retry.
class LogStore {
 public:
  virtual ~LogStore() = default;

  /// Content of the disk; nothing: it is empty.
  virtual Result<std::optional<StoredLog>> load() = 0;
  /// Makes the log of an empty disk, durably. `members` are those of the group's beginning, or those that a
  /// new member is told.
  virtual Result<Unit> create(const Identity& identity, const Members& members) = 0;
  /// Forgets every entry behind `index`, durably when it returns.
  virtual Result<Unit> truncate_after(uint64_t index) = 0;
  /// Writes a hard state if there is one, then adds entries behind the last one. All of it is durable once
  /// `sync` returned; before that a crash keeps some of the first writes, in this order.
  virtual Result<Unit> append(const std::optional<HardState>& hard, const std::vector<Entry>& entries) = 0;
  virtual Result<Unit> sync() = 0;
  /// Records a snapshot together with the hard state, in one durable step, behind all that was appended.
  /// `keep_suffix`: the snapshot is this replica's own, and entries behind it stay. Otherwise every entry
  /// goes.
  virtual Result<Unit> put_snapshot(const Snapshot& snapshot, const HardState& hard, bool keep_suffix) = 0;
};

}  // namespace gpusched::consensus
