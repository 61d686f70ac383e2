#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace gpusched::cli {

/// How gpu-cli ends; `docs/reference/cli.md` has them for users. `submit --wait` ends with the job's own
/// code.
enum ExitCode : int {
  kExitOk = 0,
  kExitJobFailed = 1,     ///< The job ended without an exit code of its own: cancelled, lost, never started.
  kExitUsage = 2,         ///< The command line is wrong; nothing was sent.
  kExitUnreachable = 3,   ///< No scheduler answers there.
  kExitRefused = 4,       ///< The scheduler said no: not found, quota, conflict, not now.
  kExitUnexpected = 5,    ///< No usable answer: it may or may not have been done.
  kExitWaitedInVain = 6,  ///< The time to wait that was given ran out first.
  kExitOutputLost = 7,    ///< The output could not be written; the request may have been carried out.
  kExitHeld = 8,          ///< The job is held: it does not go on until somebody releases it.
  kExitTimeLimit = 124,   ///< The job reached its maximum runtime.
};

/// The needs of the command line from the process around it, so that tests can stand in for it. The functions
/// may be called from several threads at once.
struct CliIo {
  /// Standard output, written through at once. When it cannot be written the process ends, with a sentence on
  /// standard error and kExitOutputLost: nobody shall take half an answer for a whole one.
  std::function<void(std::string_view)> out;
  std::function<void(std::string_view)> err;
  /// Called before that end, when it is set; null in tests.
  std::shared_ptr<std::function<void()>> on_lost_output = {};
  std::function<Result<std::string>()> read_stdin;
  /// One line that somebody types, without its end; nothing: standard input is no terminal, or has ended.
  std::function<std::optional<std::string>()> read_answer = {};
  std::function<std::string(const char* name)> environment;   ///< Empty: not set.
  std::function<std::vector<std::string>()> environment_all;  ///< Each as "NAME=value".
  /// Ends the process at once with this code, while other threads of ours wait for the scheduler.
  std::function<void(int exit_code)> leave;
  std::function<std::string()> working_directory;  ///< Absolute; empty: it is gone.
  std::function<std::string()> login_name = {};    ///< Login name of the caller; empty: unknown.
  /// URL of the Unix socket of this machine's scheduler; empty: none answers.
  std::function<std::string()> find_socket = {};
  /// The token of the scheduler at a URL, when this user may have it by itself; empty: none; nothing: the
  /// scheduler is away.
  std::function<std::optional<std::string>(const std::string& url, const std::string& ca_file)> find_token =
      {};
  /// Whether a token that was read from a file may be sent to a URL.
  std::function<Result<Unit>(const std::string& url, const std::string& token_file)> check_receiver = {};
  std::function<Time()> wall_now;
  std::function<void(Duration)> pause;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  int height = 24;
  int width = 80;  ///< Columns of the terminal; 80 when standard output is none.

  /// Columns that one line of output may fill: without a terminal, as many as it likes.
  int line_width() const { return out_is_terminal ? width : std::numeric_limits<int>::max(); }
};

/// Runs one command. `arguments` are those behind the program's name.
int run_cli(int argument_count, const char* const* arguments, const CliIo& io);

/// The sentence for output that could not be written, and why: an errno.
std::string lost_output(int error);

/// The process's own streams, environment, clock and terminal.
CliIo process_io();

}  // namespace gpusched::cli
