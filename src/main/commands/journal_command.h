#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "grammar/program.h"
#include "journal/journal.h"

namespace gpusched {

/// Says in one line what a record's payload holds; `journal dump` prints it behind the record.
using JournalDecoder = std::function<std::string(const JournalRecord&)>;

/// `gpu-scheduler journal verify|dump|audit|stat DIR [--json]`. Takes no lock and changes nothing: it works
/// beside a running scheduler. Exit status: 0 when the journal is whole, 1 when it is damaged or cannot be
/// read, 2 when the arguments are wrong. With a decoder, which may be empty, `verify` also proves that the
/// snapshots and the journal make the same state: 1 when a snapshot cannot be used. `out` and `err` must
/// outlive the commands.
std::vector<ProgramCommand> journal_commands(std::ostream& out, std::ostream& err, JournalDecoder decode);

}  // namespace gpusched
