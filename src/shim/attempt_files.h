#pragma once

#include <cstdint>

#include "base/ids.h"

namespace gpusched::shim {

/// Opens a file of an attempt's folder to be written from its beginning: it is made, with mode 0640, or what
/// it had is removed. A link is not followed. `flags` are added to those of openat(2). -1, and errno says
/// why, when it cannot be. Thread-safe.
///
/// A file that is empty already, as those of a spare folder are, is left as it is: ext4 writes a truncated
/// file out when it is closed (auto_da_alloc), which takes longer than all else that a short task needs.
int open_emptied(int folder, const char* name, int flags = 0);

/// Opens the payload that the agent left for the attempt, to be read, and takes its name away: it is there
/// for as long as somebody has it open. `attempts_folder`: the folder of all attempts. -1, and errno says
/// why, when there is none of so many bytes.
int take_payload(int attempts_folder, const AttemptKey& key, uint64_t bytes);

}  // namespace gpusched::shim
