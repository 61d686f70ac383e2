#include "grammar/version.h"

/// Each program's own, from cmake/Commit.cmake; so a new commit links the programs again, and no test.
extern "C" __attribute__((weak)) const char* gpusched_commit();

namespace gpusched {

std::string version_line(std::string_view program, std::string_view version) {
  std::string line = std::string(program) + " " + std::string(version);
  const std::string_view commit = gpusched_commit == nullptr ? "" : gpusched_commit();
  if (!commit.empty()) line += " (commit " + std::string(commit) + ")";
  return line;
}

}  // namespace gpusched
