#pragma once

#include <string>

#include "base/result.h"

namespace gpusched::shim {

/// Opens what a container mounts, "SOURCE:TARGET:MODE" with a source that was found to be allowed and had no
/// link in it, mounts that very file or folder at `place`, which nobody else can reach, and gives the same
/// mount with `place` as its source: it leads nowhere else, whatever becomes of the path. Where this process
/// may not mount, or the runtime would not see what it mounts (`seen` is false), the mount comes back as it
/// was, looked at again. An error says that the path leads elsewhere by now, or is gone.
Result<std::string> pin_mount(const std::string& mount, const std::string& place, bool seen);

/// Takes away what pin_mount mounted in the folder, and the folder. A container keeps what it has. Nothing
/// happens where there is none.
void release_pins(const std::string& folder);

/// Whether this process sees the same mounts as the machine's first one, and so as its daemons.
bool shares_the_machines_mounts();

}  // namespace gpusched::shim
