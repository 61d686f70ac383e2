#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "node/process/box_planner.h"

namespace gpusched {

class Grammar;

/// Settings of attempts' boxes from the command line, before they are read further.
struct BoxRequestFields {
  std::vector<std::string> environment;
  std::vector<std::string> environment_files;
  std::vector<std::string> limits;
  std::vector<std::string> gpu_nodes;
  std::vector<std::string> kept_groups;  ///< Empty: the usual ones.
  std::optional<int64_t> user_min_uid;
  std::optional<int64_t> oom_score;
  std::string default_memory;  ///< "share", "none" or empty.
};

/// Adds the options of attempts' boxes to gpu-agent's.
void declare_box(Grammar& grammar, BoxOptions& box, BoxRequestFields& words);
/// Reads `words` into `box`. An error names the option at fault.
Result<Unit> complete_box(BoxOptions& box, const BoxRequestFields& words);

}  // namespace gpusched
