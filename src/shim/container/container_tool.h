#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

/// Other programs, run by the runner of a container: command lines of container runtimes.
namespace gpusched::shim {

/// Exit code of a program that a signal ended, less the signal's number.
constexpr int kExitSignalBase = 128;

/// Longest reason taken from the output of a tool.
constexpr std::size_t kReasonBytesMax = 600;

/// Learns of the order to end (SIGTERM, SIGINT, SIGHUP) and of children's ends, by a descriptor. One for each
/// process, made before the first child. Not thread-safe.
class SignalWatch {
 public:
  /// Blocks these signals; children made by `start_tool` do not inherit that.
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int descriptor() const { return descriptor_; }
  /// Takes what has arrived. True once an order to end came, and from then on.
  bool stop_wanted();
  /// The signal that shall reach the container, as the newest order to end names it; SIGTERM when none does.
  int stop_signal() const { return stop_signal_; }
  /// Sleeps, at most until a signal arrives.
  void pause(Duration span);

 private:
  int descriptor_ = -1;
  bool stop_wanted_ = false;
  int stop_signal_ = SIGTERM;
};

/// Descriptors of a new process; -1: /dev/null.
struct ToolFiles {
  int input = -1;
  int output = -1;
  int error_output = -1;
  /// Become 3, 4 and so on.
  std::vector<int> more = {};
  std::vector<std::string> cgroups = {};  ///< Folders of groups that it enters.
  std::vector<gid_t> user = {};  ///< uid, gid and supplementary groups to become; empty: nobody else.
};

/// Starts a program in a process group of its own, which ends with this process. -1 with errno: it is not
/// there.
pid_t start_tool(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                 const ToolFiles& files);

struct ToolResult {
  int exit_code = 0;  ///< 128 + signal for an end by signal; 127: it could not be started.
  std::string output = {};
  std::string errors = {};  ///< The last kilobytes of its error output.
  bool stopped = false;     ///< An order to end came meanwhile; the program was ended.
};

struct ToolOptions {
  Duration patience = minutes(1);  ///< Timeout after which it is killed.
  bool terminal = false;     ///< Gives it a terminal as error output: programs then draw their progress.
  bool ignore_stop = false;  ///< Finishes it although an order to stop came.
  std::function<void(std::string_view piece)> on_errors = {};  ///< Error output as it comes.
};

/// Runs a program to its end.
ToolResult run_tool(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                    SignalWatch& signals, const ToolOptions& options);

/// The last non-empty line of a text without control characters, at most `size_max` bytes.
std::string last_line(std::string_view text, std::size_t size_max);

}  // namespace gpusched::shim
