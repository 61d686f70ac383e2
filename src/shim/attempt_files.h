#pragma once

namespace gpusched::shim {

/// Opens a file of an attempt's folder to be written from its beginning: it is made, with mode 0640, or what
/// it had is removed. A link is not followed. `flags` are added to those of openat(2). -1, and errno says
/// why, when it cannot be. Thread-safe.
///
/// A file that is empty already, as those of a spare folder are, is left as it is: ext4 writes a truncated
/// file out when it is closed (auto_da_alloc), which takes longer than all else that a short task needs.
int open_emptied(int folder, const char* name, int flags = 0);

}  // namespace gpusched::shim
