#pragma once

namespace gpusched::shim {

/// Removes `name` in the folder `parent` and everything below it, without following a link or entering what
/// is mounted there, be it from the same file system: whoever owns what is in there may change it meanwhile.
/// False when something is left. Thread-safe.
bool remove_tree(int parent, const char* name);

}  // namespace gpusched::shim
