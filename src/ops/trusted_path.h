#pragma once

#include <optional>
#include <string>

namespace gpusched::ops {

/// Finds who else than root and this process's user could put another program or file where `path` leads: one
/// sentence with the repair, or nothing. Looked at are the file, every link on the way, and every folder
/// above each: owned by root or this process's user, and writable by nobody else. A folder with the sticky
/// bit may be writable by all: what is in it is its owner's. A file that is not there is no finding: nothing
/// runs then.
std::optional<std::string> changeable_by_others(const std::string& path);

}  // namespace gpusched::ops
