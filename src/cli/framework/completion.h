#pragma once

#include <string>
#include <vector>

#include "cli/framework/run.h"

namespace gpusched::cli {

/// The words that could stand for the last of `words`, of which that much was typed so far: a line for each,
/// with a tab and a description where there is one; then a line that begins with ':' and says what else the
/// shell may offer (":files", ":folders", ":" for nothing). Asks the scheduler for ids and names, for a
/// second at most; never fails.
std::string completions(const std::vector<std::string>& words, const CliIo& io);

}  // namespace gpusched::cli
