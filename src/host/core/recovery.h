#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "base/result.h"
#include "engine/engine.h"
#include "host/core/decoded_records.h"
#include "host/host.h"
#include "journal/journal.h"
#include "journal/snapshot_store.h"
#include "model/state.h"

namespace gpusched {

struct Recovered {
  State state;
  uint64_t position = 0;
  /// A copy of the state, where one was made beside something else.
  std::optional<State> copy = {};

  /// The copy, which must be taken before the state.
  State take_copy() { return copy ? *std::exchange(copy, std::nullopt) : state.clone(); }
};

/// Builds the state from the newest snapshot that proves to be what it says, and the journal behind it. A
/// snapshot that is refused, for whatever reason but a newer program's format, is passed over for the one
/// before, and at last for the whole journal; the report says so. kCorrupt when the journal does not continue
/// where the snapshot ends, or a record cannot be decoded; kVersion when a program of a higher feature level
/// than `level` has used the folder, which may decide otherwise. Nothing is changed then.
Result<Recovered> recover(Journal& journal, SnapshotStore& snapshots, RecoveryReport& report,
                          int64_t level = kFeatureLevel, Threads threads = Threads::kOne);

/// Sees each command of a replay: the state behind it, what became of it, its time, and who proposed it,
/// where that is known.
using ReplayWatcher =
    std::function<void(const State&, const Command&, const Applied&, Time, const Proposer*)>;

/// Applies one journal record to the state behind the record before it, whose digest must be the one that the
/// record names. kCorrupt, kVersion: the record is not what follows; the state may be half way then.
Result<Unit> replay(State& state, const JournalRecord& record, RecoveryReport& report, Events& events,
                    int64_t level = kFeatureLevel, const ReplayWatcher& watcher = nullptr);

}  // namespace gpusched
