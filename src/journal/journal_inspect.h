#pragma once

#include <string>

#include "journal/disk/disk.h"
#include "journal/journal_dir.h"

namespace gpusched {

/// The journal's folder for a folder given by a person: `dir`/journal when that is one, else `dir`.
std::string find_journal_dir(Disk& disk, const std::string& dir);

/// Reads and checks a whole journal. Takes no lock and changes nothing, so it works beside a running
/// scheduler: what that one writes meanwhile may or may not be seen, and an unfinished write at the end is a
/// torn tail in the result, no error. The snapshots beside the journal are not looked into where a
/// gap lies before it, as at a start. `visit` (which may be empty) sees each record once, in order.
/// kNotFound: the folder is no journal. kCorrupt, kVersion, kIo: as `scan_journal`.
Result<JournalScan> inspect_journal(Disk& disk, const std::string& dir, const StoredVisitor& visit);

}  // namespace gpusched
