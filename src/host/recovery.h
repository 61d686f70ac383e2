#pragma once

#include "base/result.h"
#include "host/host.h"
#include "journal/journal.h"
#include "journal/snapshot_store.h"
#include "model/state.h"

namespace gpusched {

struct Recovered {
  State state;
  uint64_t position = 0;
};

/// Builds the state from the newest whole snapshot and the journal behind it. kCorrupt when the journal does
/// not continue where the snapshot ends, or a record cannot be decoded; nothing is changed then.
Result<Recovered> recover(Journal& journal, SnapshotStore& snapshots, RecoveryReport& report);

}  // namespace gpusched
