#pragma once

#include <memory>

#include "base/result.h"
#include "host/core/journal_writer.h"
#include "host/host.h"

namespace gpusched {

/// Host::open for a scheduler that leads several: its journal is `journal`'s, and what it decides is agreed
/// on by the others. When another one leads, requests that were begun end with kOutcomeUnknown, all others
/// with kUnavailable; nothing is decided any more, and the process should end.
Result<std::unique_ptr<Host>> open_shared_host(const HostOptions& options,
                                               std::shared_ptr<SharedJournal> journal);

}  // namespace gpusched
