#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "codec/group.h"
#include "journal/journal.h"

namespace gpusched {

/// A journal's record, unpacked.
struct DecodedRecord {
  uint64_t position = 0;
  uint64_t first_sequence = 0;
  uint64_t payload_bytes = 0;
  Result<CommandGroup> group;  ///< Or why the payload cannot be decoded.
};
DecodedRecord decode_record(const JournalRecord& record);

/// How many threads a start may use.
enum class Threads : uint8_t {
  kOne,  ///< The caller's.
  kTwo,  ///< Another one for what the caller need not wait for.
};

/// Calls `visit` on the caller's thread with each record from `position` on, in order; stops at its first
/// error and returns it, or the journal's own. The second thread reads and decodes, at most
/// limits::kDecodedAheadBytesMax ahead. Nobody else may use the journal meanwhile.
Result<Unit> read_decoded(Journal& journal, uint64_t position, Threads threads,
                          const std::function<Result<Unit>(DecodedRecord&)>& visit);

}  // namespace gpusched
