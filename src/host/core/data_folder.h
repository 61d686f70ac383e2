#pragma once

#include <memory>

#include "host/core/journal_writer.h"
#include "host/core/recovery.h"
#include "host/host.h"
#include "journal/file_journal.h"
#include "journal/snapshot_store.h"

namespace gpusched {

/// A scheduler's data folder, opened for writing and recovered.
struct DataFolder {
  std::shared_ptr<FileJournal> journal;  ///< A shared one is somebody else's, and only lent.
  std::unique_ptr<SnapshotStore> snapshots;
  Recovered recovered;
  RecoveryReport report;
};

/// How a scheduler's journal is opened in `options.data_dir`/journal.
FileJournalOptions ordinary_journal_options(const HostOptions& options);

/// Opens the folder, makes it when it is absent, and recovers what it holds. Errors as Host::open.
/// kInvalidArgument also: the folder is a replica's, and its journal is not lent.
/// `shared`: the journal of one of several schedulers; null: the folder's own is opened.
Result<DataFolder> open_data_folder(const HostOptions& options, SharedJournal* shared = nullptr);

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
