#include <memory>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_output.h"
#include "cli/verbs/jobs/job_query.h"
#include "cli/verbs/jobs/wait_notice.h"

namespace gpusched::cli {
namespace {

struct LogsOptions {
  std::string job;
  bool follow = false;
  bool only_out = false;
  bool only_err = false;
  bool both = false;
  int64_t attempt = 0;  ///< 0: the latest.
  std::optional<int64_t> member;
  int64_t tail = 0;
  std::string since;
  std::string grep;
  bool timestamps = false;
};

/// Why there is no output, on standard error: the job did not start, or could not. A job that ran and wrote
/// nothing needs no word.
void say_why_silent(const Session& session, const std::string& job, const Json& record) {
  const std::string state = record["state"].text();
  const std::string cause = record["cause"].text();
  std::string sentence = wait_sentence(job, record);
  const bool ran = cause == "exited" || cause == "signaled" || cause == "stopped";
  if (sentence.empty() && !ran && (state == "failed" || state == "cancelled"))
    sentence = end_sentence(job, record);
  if (!sentence.empty()) session.io().err("gpu-cli: " + printable(with_local_times(sentence)) + "\n");
}

int show_logs(Session& session, const LogsOptions& logs) {
  std::string since;
  if (!logs.since.empty()) {
    const Result<std::string> read = since_parameter(logs.since, session.io().wall_now());
    if (!read) return session.fail(kExitUsage, read.error().message, "usage");
    since = *read;
  }
  const bool all = logs.both || logs.only_out == logs.only_err;
  const OutputChoice choice{
      .out = all || logs.only_out,
      .err = all || logs.only_err,
      .follow = logs.follow,
      .attempt = logs.attempt,
      .one_attempt = logs.attempt > 0,
      .member = logs.member,
      .lines = {.tail = logs.tail, .since = since, .grep = logs.grep, .timestamps = logs.timestamps}};
  JobOutput output(session, logs.job, choice);
  const Reply reply = output.print();
  if (logs.follow && (reply || reply.trouble->code == "log_not_found")) {
    const Reply record = poll_job(session, logs.job, Duration{});
    if (record && is_held(record.json)) return exit_like(session, logs.job, record.json);
  }
  const int code = reply ? kExitOk : session.fail(*reply.trouble);
  const bool whole = logs.tail == 0 && logs.since.empty() && logs.grep.empty() && logs.attempt == 0;
  const bool silent = !output.any() && whole && (reply || reply.trouble->code == "log_not_found");
  if (!silent) return code;
  const Reply now = poll_job(session, logs.job, Duration{});
  if (now) say_why_silent(session, logs.job, now.json);
  return code;
}

}  // namespace

Action define_logs(Grammar& grammar) {
  const auto logs = std::make_shared<LogsOptions>();
  grammar.argument("JOB", &logs->job, "Job id").completes(Complete::kJob);
  grammar.flag("-f,--follow", logs->follow,
               "Follow until the job ends, across later attempts and broken connections");
  grammar.flag("--stdout", logs->only_out, "Only standard output");
  grammar.flag("--stderr", logs->only_err, "Only standard error");
  grammar.flag("--both", logs->both, "Both, which is the default");
  grammar.option("--tail", "N", &logs->tail, "Only the last N lines of each stream").range(1, 1'000'000);
  grammar.option("--since", "TIME", &logs->since,
                 "Only what was written since: 10m (ago), 09:30, \"yesterday 18:00\", 2025-01-31 or "
                 "2025-01-31T09:00:00Z");
  grammar.option("--grep", "TEXT", &logs->grep, "Only lines that contain TEXT, filtered on the node");
  grammar.flag("-t,--timestamps", logs->timestamps,
               "Prefix each line with its time, accurate to about two seconds");
  grammar.option("--attempt", "N", &logs->attempt, "Only this attempt, 1 for the first (default: the latest)")
      .range(1, 1'000'000'000);
  grammar
      .option("--member", "N", &logs->member,
              "Only this member of a gang, counted from 0 (default: all, each line behind its [member])")
      .range(0, limits::kMembersMax);
  grammar.details(
      "The job's standard output goes to this command's standard output, its standard error to this "
      "command's standard error: `2>errors` separates them, `2>&1 | less` pages both. Without -f, standard "
      "output comes first. If the job could not be started, or waits, standard error says why.");
  grammar.details(
      "Of an array, the output of all elements is printed, in their order, each line behind the element's "
      "[index]; "
      "with -f of eight elements at a time, the others as these end.");
  grammar.example("gpu-cli logs -f job-12", "follow a job until it ends");
  grammar.example("gpu-cli logs --tail 20 job-12", "the last lines");
  return [logs](Session& session) { return show_logs(session, *logs); };
}

}  // namespace gpusched::cli
