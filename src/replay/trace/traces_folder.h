#pragma once

#include <cstdlib>
#include <string>

namespace gpusched::replay {

/// Where public traces lie: the environment's GPUSCHED_TRACES, else `../shared/traces` beside the project,
/// seen from its root.
inline std::string traces_folder() {
  const char* named = std::getenv("GPUSCHED_TRACES");
  return named != nullptr && *named != '\0' ? named : "../shared/traces";
}

}  // namespace gpusched::replay
