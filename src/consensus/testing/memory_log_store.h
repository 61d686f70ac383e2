#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "consensus/log/log_store.h"
#include "consensus/testing/simulated_disk.h"

namespace gpusched::consensus {

/// Ways in which a disk, or the code that writes to it, may be wrong. For planted faults.
struct StoreLies {
  bool forgets_votes = false;    ///< A hard state is kept without its vote.
  bool forgets_terms = false;    ///< Only the commit index of a hard state is kept.
  bool syncs_nothing = false;    ///< `sync` returns and makes nothing durable.
  bool drops_suffix = false;     ///< A replica's own snapshot takes the entries behind it along.
  bool tears_snapshots = false;  ///< The hard state of a snapshot is written in a step before it.
};

/// A disk in memory that tells apart what is durable from what is only written, and can lose its power
/// before or behind any operation.
class MemoryLogStore final : public LogStore, public SimulatedDisk {
 public:
  Result<std::optional<StoredLog>> load() override;
  Result<Unit> create(const Identity& identity, const Members& members) override;
  Result<Unit> truncate_after(uint64_t index) override;
  Result<Unit> append(const std::optional<HardState>& hard, const std::vector<Entry>& entries) override;
  Result<Unit> sync() override;
  Result<Unit> put_snapshot(const Snapshot& snapshot, const HardState& hard, bool keep_suffix) override;

  Result<LogStore*> open() override { return this; }
  void lose_power(Prng& draw) override;
  void fail_after(uint64_t operations, bool done) override;
  void heal() override { fails_at_.reset(); }
  /// Replaces what is durable of the hard state.
  void put_hard_state(const HardState& hard) { durable_->hard_state = hard; }
  /// Everything is gone.
  void wipe();

  uint64_t operations() const { return operations_; }
  StoreLies lies;

 private:
  struct Write {
    std::optional<Entry> entry;
    std::optional<HardState> hard;
  };
  /// Whether this operation takes effect, and what it returns.
  Result<Unit> operate(bool& takes_effect);
  void apply(const Write& write);
  HardState as_kept(HardState hard) const;

  std::optional<StoredLog> durable_;
  std::vector<Write> written_;  ///< Not synced, in order.
  uint64_t operations_ = 0;
  std::optional<uint64_t> fails_at_;
  bool fails_done_ = false;
};

}  // namespace gpusched::consensus
