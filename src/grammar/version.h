#pragma once

#include <string>
#include <string_view>

namespace gpusched {

/// Returns what `--version` prints: "gpu-cli 0.1.0 (commit 1a2b3c4d5e6f of 2026-11-28)". A program that was
/// built from files without a git repository, and a test, has no commit to tell: "gpu-cli 0.1.0".
/// Thread-safe.
std::string version_line(std::string_view program, std::string_view version);

}  // namespace gpusched
