#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "journal/journal.h"

namespace gpusched {

/// Says in one line what a record's payload holds; `journal dump` prints it behind the record.
using JournalDecoder = std::function<std::string(const JournalRecord&)>;

/// `gpu-scheduler journal verify|dump|audit|stat DIR [--json]`. `argv[0]` is the word `journal`, the rest
/// follows. Takes no lock and changes nothing: it works beside a running scheduler. Returns the exit status:
/// 0 when the journal is whole, 1 when it is damaged or cannot be read, 2 when the arguments are wrong. With
/// a decoder, `verify` also proves that the snapshots and the journal make the same state: 1 when a snapshot
/// cannot be used.
int run_journal_command(int argc, char** argv);
/// The same with its outputs and a decoder, which may be empty, from outside.
int run_journal_command(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                        const JournalDecoder& decode);

}  // namespace gpusched
