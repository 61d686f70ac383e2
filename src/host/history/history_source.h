#pragma once

#include <string>

#include "history/history.h"

namespace gpusched {

/// Reads journal records again for a history that is behind, beside the scheduler that writes the journal: a
/// state at or before `after`, from a snapshot or from the journal's beginning, and the records behind it.
/// When neither reaches back so far, the sink gets an Adopted of the oldest state that there is. Takes no
/// lock, changes nothing. `present`: the batches say how records left jobs and tenants, too. kCorrupt, kIo:
/// no state and no records lead to `until`.
Result<Unit> read_history(const std::string& data_dir, const history::DescribeJob& describe, bool present,
                          uint64_t after, uint64_t until, const history::History::Sink& sink);

}  // namespace gpusched
