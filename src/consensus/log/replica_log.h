#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "consensus/core/consensus_core.h"
#include "consensus/core/values.h"
#include "consensus/log/log_store.h"

namespace gpusched::consensus {

/// A replica's log over its disk, in memory from the snapshot on. It holds the rules under which no crash
/// between two writes leaves a disk that contradicts itself. Not thread-safe.
class ReplicaLog final : public LogReader {
 public:
  /// Opens the log of `replica` of `cluster`. `store` must outlive it. kNotFound: the disk is empty.
  /// kInvalidArgument: it holds another replica's log. kCorrupt: it forgot something that it had
  /// acknowledged. Nothing was changed then.
  static Result<std::unique_ptr<ReplicaLog>> open(LogStore& store, uint64_t cluster, uint64_t replica);

  uint64_t first_index() const override { return snapshot_.index + 1; }
  uint64_t last_index() const override { return snapshot_.index + entries_.size(); }
  uint64_t term(uint64_t index) const override;
  std::vector<Entry> entries(uint64_t low, uint64_t high, uint64_t bytes_max) const override;
  std::optional<Snapshot> snapshot(uint64_t to) const override;

  const Identity& identity() const { return identity_; }
  const HardState& hard_state() const { return hard_state_; }
  /// The members at the snapshot; at the group's beginning when there is none.
  const Members& members() const { return snapshot_.members; }
  uint64_t snapshot_index() const { return snapshot_.index; }
  /// A replica needs a snapshot that knows it, and this one does not: a newer one does.
  bool wants_snapshot() const { return wants_snapshot_; }
  /// Last entry that is durable.
  uint64_t durable_index() const { return durable_; }

  /// Adds entries, and removes those that they contradict first: durably, since a crash could otherwise leave
  /// some of both. Durable itself with the next `sync`. On the disk the commit index never names an entry
  /// that a crash could still take.
  Result<Unit> append(const std::vector<Entry>& entries, const std::optional<HardState>& hard);
  Result<Unit> sync();
  /// Records this replica's own snapshot; entries behind it stay. Its index must be committed.
  Result<Unit> compact(const Snapshot& own);
  /// Replaces the whole log by another replica's snapshot.
  Result<Unit> install(const Snapshot& received, const HardState& hard);

 private:
  explicit ReplicaLog(LogStore& store) : store_(store) {}
  Result<Unit> take(StoredLog stored);

  LogStore& store_;
  Identity identity_;
  HardState hard_state_;
  Snapshot snapshot_;
  std::deque<Entry> entries_;  ///< From `first_index` on.
  uint64_t durable_ = 0;
  mutable bool wants_snapshot_ = false;
};

}  // namespace gpusched::consensus
