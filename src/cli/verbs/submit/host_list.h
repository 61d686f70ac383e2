#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace gpusched::cli {

/// The names of "a,n[1-3,7],rack[01-12]", as Slurm writes lists of nodes; leading zeros stay. At most 1,000.
/// kInvalidArgument for anything else.
Result<std::vector<std::string>> expand_host_list(const std::string& text);

}  // namespace gpusched::cli
