#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// A command that ran in a job without anybody watching.
struct CapturedCommand {
  /// Why there is no session, or why it broke; nothing: the command ended by itself.
  std::optional<Trouble> trouble;
  int exit_code = -1;
  std::string output;  ///< Its standard output, at most 64 KiB of it.
};

/// Runs a command without input in a session of the running job, and waits for its end.
CapturedCommand capture_session(Session& session, const std::string& job,
                                const std::vector<std::string>& command);

}  // namespace gpusched::cli
