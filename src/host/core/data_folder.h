#pragma once

#include <memory>

#include "host/core/recovery.h"
#include "host/host.h"
#include "journal/file_journal.h"
#include "journal/snapshot_store.h"

namespace gpusched {

/// A scheduler's data folder, opened for writing and recovered.
struct DataFolder {
  std::unique_ptr<FileJournal> journal;
  std::unique_ptr<SnapshotStore> snapshots;
  Recovered recovered;
  RecoveryReport report;
};

/// Opens the folder, makes it when it is absent, and recovers what it holds. Errors as Host::open.
Result<DataFolder> open_data_folder(const HostOptions& options);

/// Clock times that an operator accepted.
struct AcceptedClock {
  Time newest;  ///< In the journal, until now.
  Time wall;
};

/// The operator's word that the wall clock is right although it is far from the newest time in the journal:
/// writes a record of that time, so that the next start goes on from there. For a folder on which no
/// scheduler runs. kInvalidArgument: there is nothing to accept, or it cannot be. Else as Host::open.
Result<AcceptedClock> accept_clock(const HostOptions& options, const Clock& clock);

}  // namespace gpusched
