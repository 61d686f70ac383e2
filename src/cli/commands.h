#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/framework/session.h"

/// Functions shared by several commands.
namespace gpusched::cli {

class SignalWatch;

/// Start and filter of an output.
struct LogChoice {
  int64_t member = 0;  ///< Member of a gang.
  int64_t tail = 0;    ///< Positive: its last so many lines.
  std::string since;   ///< "10m" or a time; empty: from its beginning.
  std::string grep;    ///< Text that lines must contain; empty: all lines.
  bool timestamps = false;
  /// Told how many bytes are no longer kept; nothing: passed over in silence.
  std::function<void(int64_t bytes)> skipped = {};
};

/// Writes a job's output to `write` until the job has ended, over all attempts from `attempt` on (0: from the
/// latest on); over `attempt` alone when `one_attempt`. Waits for a job that has not started, and takes up
/// the thread after the scheduler was away. `stream` is "stdout" or "stderr".
Reply follow_logs(Session& session, const std::string& job, const std::string& stream, int64_t attempt,
                  bool one_attempt, const HttpOnData& write, const LogChoice& choice = {});

/// Whether a job's record says that nothing more will happen to it.
bool is_final(const Json& job);
/// Whether a job's record says that it is held: it does not go on until somebody releases it.
bool is_held(const Json& job);
/// Whether a job's record says that it waits for what no registered node has.
bool never_starts(const Json& job);
/// One long poll: the job's record when it is final, or after `wait`.
Reply poll_job(Session& session, const std::string& job, Duration wait);
/// Waits for the jobs, prints each end, and returns the exit code of the first that did not complete.
/// `timeout` is a span, or empty for none; `any` ends with the first end.
int wait_for_jobs(Session& session, const std::vector<std::string>& jobs, const std::string& timeout,
                  bool any);
/// How long to wait by the value of --timeout; a year without one. The sentence of an error names the option.
Result<Duration> wait_span(const std::string& timeout);
/// "job-12 has not ended after 10m; it continues"
std::string vain_sentence(const std::string& job, const std::string& timeout);
/// "job-12 failed: its command exited with code 3", or that it completed.
std::string end_sentence(const std::string& job, const Json& record);
/// The exit code that stands for how the job ended, or is held, with one line about a failure.
int exit_like(const Session& session, const std::string& job, const Json& record);
/// Asks for the job until it is final or held, or until `until`. Says on standard error why it waits, if that
/// takes more than two seconds. Survives a scheduler's restart.
Reply wait_until_final(Session& session, const std::string& job, Time until = kNever);
/// The job's record once it runs, is held or is over. Says on standard error why it waits.
Reply wait_until_running(Session& session, const std::string& job);
/// As wait_until_final, and meanwhile copies the job's standard output and standard error to ours, from
/// `attempt` on (0: from the latest on), or of `attempt` alone when `one_attempt`. At `until` the process
/// ends with kExitWaitedInVain and one line, which names the span `timeout`.
Reply show_until_final(Session& session, const std::string& job, int64_t attempt, bool one_attempt,
                       Time until = kNever, const std::string& timeout = {});
/// Two lines: the commands that attach to a job that continues, and that cancel it.
std::string ways_back(const std::string& job);
/// Until the result is destroyed, Ctrl-C and SIGTERM end the process with 128 and the signal's number, and
/// standard error says that the jobs continue, and how to attach to or cancel them. Create it before other
/// threads.
std::unique_ptr<SignalWatch> watch_leaving(const Session& session, const std::vector<std::string>& jobs);

/// Submits a job once, whatever happens on the way: repeats the request under one key for a minute while the
/// scheduler is away, as at its restart, unless `retry` is false. Says so on standard error.
Reply submit_once(Session& session, const std::string& body, bool retry);
/// Waits as long for a scheduler that is away, if who we are to it is not known without it; call it before
/// the body is made. Returns whether the submission may still be repeated.
bool await_scheduler(Session& session, bool retry);

/// Submits each line of a file ("-": of standard input), one JSON submission of the native API a line, as
/// fast as lines come, and prints the ids in their order. Returns the exit code.
int submit_stream(Session& session, const std::string& path, bool retry);

/// The reply's JSON with one end of line.
std::string json_line(const Reply& reply);

}  // namespace gpusched::cli
