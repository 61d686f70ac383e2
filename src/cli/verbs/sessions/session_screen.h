#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// The session of a job that is opened, or resumed, and how it is joined to our own streams.
struct ExecOptions {
  std::string job;
  std::vector<std::string> command;
  int64_t attempt = 0;
  int64_t member = 0;
  int64_t session = 0;
  bool interactive = false;
  bool terminal = false;
  int input_fd = 0;        ///< With `interactive`: where its input comes from.
  bool holds_job = false;  ///< The job ends with the session: what is said of a lost one is different.
};

/// How a session ended for us.
struct SessionEnd {
  int exit_code = 0;      ///< Exit code of gpu-cli.
  bool opened = false;    ///< The scheduler accepted it, and its words have been said.
  bool finished = false;  ///< The command ended by itself; `exit_code` is its own.
  bool detached = false;  ///< It runs on.
  int killed_by = 0;      ///< The signal that ended gpu-cli; 0: none.
};

/// Opens the WebSocket of a session in the job; what the session is, is said by the first message.
SocketReply open_session_socket(Session& session, const std::string& job);

/// Opens the session, joins it to our streams until it ends, and says on standard error how it ended if that
/// is not by its command's end.
SessionEnd run_session(Session& session, const ExecOptions& options);

}  // namespace gpusched::cli
