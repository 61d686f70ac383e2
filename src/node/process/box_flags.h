#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "node/process/box_planner.h"

namespace CLI {
class App;
}

namespace gpusched {

/// Settings of attempts' boxes from the command line, before they are read further.
struct BoxRequestFields {
  std::vector<std::string> environment;
  std::vector<std::string> environment_files;
  std::vector<std::string> limits;
  std::vector<std::string> gpu_nodes;
};

/// Adds the options of attempts' boxes to gpu-agent's.
void declare_box(CLI::App& app, BoxOptions& box, BoxRequestFields& words);
/// Reads `words` into `box`. An error names the option at fault.
Result<Unit> complete_box(BoxOptions& box, const BoxRequestFields& words);

}  // namespace gpusched
