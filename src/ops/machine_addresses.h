#pragma once

#include <string>
#include <vector>

namespace gpusched::ops {

/// Numeric addresses of this machine's interfaces, those of loopback among them, without zones. Empty: the
/// kernel does not tell. Thread-safe.
std::vector<std::string> machine_addresses();

}  // namespace gpusched::ops
