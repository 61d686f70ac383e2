#pragma once

#include <cstdint>
#include <string>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// The resources and limits of a shell of its own.
struct LeaseShell {
  int64_t gpus = 1;
  std::string gpu_model;
  std::string time_limit;  ///< As written; empty: that of gpu-cli run.
};

/// Holds GPUs, opens a login shell beside them, and gives them back when the shell ends, or gpu-cli does.
int run_lease_shell(Session& session, const LeaseShell& shell);

}  // namespace gpusched::cli
