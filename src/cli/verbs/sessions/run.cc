// gpu-cli run: a job that lives as long as this command.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "base/job_labels.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/text.h"
#include "cli/verbs/jobs/wait_notice.h"
#include "cli/verbs/sessions/bound_job.h"
#include "cli/verbs/sessions/lease_shell.h"
#include "cli/verbs/sessions/session_screen.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

constexpr int kEndLooks = 5;
constexpr std::size_t kTitleMax = 60;

/// The job's own command with -i and -t: it waits for the session that runs the user's command, and ends with
/// its exit code; also when the session is killed, or when none has begun after two minutes. The sleeping
/// process keeps the pipe open until then; later the session does, whose end is waited for, since the job's
/// end would end it before it told its exit code. Before it stands the pipe's name.
constexpr std::string_view kHolder =
    "mkfifo -m 600 \"$f\" || exit 1\n"
    "sleep 120 > \"$f\" &\n"
    "{ if read -r code; then kill $!; cat > /dev/null; exit \"$code\"; fi; } < \"$f\"\n"
    "echo 'gpu-cli run: the session was cut off, or never began' >&2\n"
    "exit 129\n";

/// The session's command. A shell that is interrupted waits for what it runs.
constexpr std::string_view kInSession =
    "n=0\n"
    "while [ ! -p \"$f\" ]; do n=$((n + 1)); [ $n -gt 200 ] && exit 1; sleep 0.05; done\n"
    "exec 9> \"$f\"; trap : INT QUIT\n"
    "\"$@\" 9>&-\n"
    "code=$?; echo $code >&9; exit $code\n";

/// The login shell; of users of services, whose own lets nobody in, /bin/sh.
constexpr std::string_view kLoginShell =
    "s=${SHELL:-/bin/sh}; case $s in */nologin|*/false) s=/bin/sh;; esac; [ -x \"$s\" ] || s=/bin/sh\n"
    "exec \"$s\" -l";

struct RunOptions {
  SubmitOptions submit;
  bool interactive = false;
  bool terminal = false;
  std::string lease;  ///< A job that the command runs in; empty: one of its own.
};

/// Blocks what ends a process for as long as this lives, so that none gets through between those who look for
/// signals.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

int run_streamed(Session& session, RunOptions& run, const Grammar& grammar) {
  BoundJob bound(session);
  int exit_code = 0;
  const std::string job = submit_bound(session, run.submit, grammar, bound, exit_code);
  if (job.empty()) return exit_code;
  const Reply end = show_until_final(session, job, 1, false);
  if (end) return exit_like(session, job, end.json);
  exit_code = session.fail(*end.trouble);
  cancel_job(session, job);
  return exit_code;
}

/// Gives the job, whose session has ended, a moment to end by itself; else cancels it. Its last record.
Reply end_after_session(Session& session, const std::string& job) {
  Reply record;
  for (int looks = 0; looks < kEndLooks; ++looks) {
    record = poll_job(session, job, seconds(2));
    if (record && is_final(record.json)) return record;
    if (!record) session.io().pause(seconds(1));
  }
  cancel_job(session, job);
  return record;
}

/// The line of both scripts that names their pipe.
std::string pipe_line(const std::string& key) { return "f=\"${TMPDIR:-/tmp}/gpu-cli-run-" + key + "\"\n"; }

/// Makes it a job that holds the place for a session with the user's command.
void make_holder(SubmitOptions& submit, const std::string& key) {
  std::string title;
  for (const std::string& word : submit.command) title += " " + word;
  title = printable(title.substr(0, kTitleMax));
  std::ranges::replace(title, '\n', ' ');
  if (submit.name.empty()) submit.name = submit.command.front().substr(submit.command.front().rfind('/') + 1);
  submit.command.clear();
  submit.script = "# gpu-cli run:" + title + "\n" + pipe_line(key) + std::string(kHolder);
}

int run_session_job(Session& session, RunOptions& run, const Grammar& grammar) {
  const BlockedSignals blocked;
  const std::string key = random_key();
  ExecOptions options{.command = {"/bin/sh", "-c", pipe_line(key) + std::string(kInSession), "gpu-cli-run"},
                      .interactive = true,
                      .terminal = run.terminal,
                      .holds_job = true};
  const std::vector<std::string>& words = run.submit.command;
  options.command.insert(options.command.end(), words.begin(), words.end());
  make_holder(run.submit, key);
  {
    BoundJob bound(session);
    int exit_code = 0;
    options.job = submit_bound(session, run.submit, grammar, bound, exit_code);
    if (options.job.empty()) return exit_code;
    const Reply record = wait_until_running(session, options.job);
    if (!record) {
      exit_code = session.fail(*record.trouble);
      cancel_job(session, options.job);
      return exit_code;
    }
    if (is_final(record.json)) return exit_like(session, options.job, record.json);
    if (is_held(record.json)) {
      cancel_job(session, options.job);  // Nobody would be there when it starts.
      return session.fail(kExitHeld, options.job + " was held before it started; run it again", "held");
    }
    if (run.terminal) {
      session.io().err("gpu-cli: " + options.job + " " + printable(record.json["message"].text()) +
                       "; Ctrl-P Ctrl-Q detaches\n");
    }
  }
  const SessionEnd end = run_session(session, options);
  if (end.detached) {
    session.io().err("gpu-cli: " + options.job + " ends with that session; cancel it: gpu-cli cancel " +
                     options.job + "\n");
    return end.exit_code;
  }
  if (end.killed_by != 0) {
    cancel_job(session, options.job);
    return end.exit_code;
  }
  const Reply record = end_after_session(session, options.job);
  if (end.finished || !record || !is_final(record.json)) return end.exit_code;
  const int job_code = exit_like(session, options.job, record.json);
  return end.opened && record.json["reason"].text() == "timeout" ? job_code : end.exit_code;
}

/// The options of submit that make no sense here; empty: there is none.
std::string refused_option(const RunOptions& run) {
  const SubmitOptions& submit = run.submit;
  if (!submit.timeout.empty()) return "--timeout: not with gpu-cli run; limit the job with --time";
  if (!submit.array.empty()) return "--array: gpu-cli run runs one job; use gpu-cli submit";
  if (!run.interactive && !run.terminal) return "";
  if (!submit.nodes.empty()) return "--nodes: a session is on one node; leave -i and -t out";
  if (submit.hold) return "--hold: a session begins when its job starts; leave -i and -t out";
  if (submit.retries) return "--retries: a session cannot be repeated; leave -i and -t out";
  if (!submit.input.empty()) return "--input: standard input is yours with -i and -t";
  if (run.terminal && ::isatty(STDIN_FILENO) != 1)
    return "-t needs a terminal, and standard input is not one; leave -t out";
  return "";
}

/// Whether it is written as the allocation door's ids are.
bool is_uuid(std::string_view text) {
  constexpr std::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  return text.size() == kForm.size() && std::ranges::equal(text, kForm, [](char c, char form) {
           return form == '-' ? c == '-' : std::isxdigit(static_cast<unsigned char>(c)) != 0;
         });
}

/// A lease's id of the allocation door becomes its job's. Nothing: there is none, which was said.
std::optional<int> find_job_of_lease(Session& session, std::string& lease) {
  if (!is_uuid(lease)) return std::nullopt;
  Reply record = session.get("/api/gpuscheduler/v1/gpu/" + lease);
  // The door's own errors have one sentence, and no code.
  if (!record && !record.json["detail"].text().empty()) {
    Trouble& trouble = *record.trouble;
    trouble.exit_code = kExitRefused;
    if (trouble.code == "http_404" || trouble.code == "http_403") {
      trouble.code = "lease_not_found";
      trouble.sentence = "no such lease: " + lease +
                         "; it is unknown, or another organization's; list those that you may see: "
                         "gpu-cli list --label gpusched.lease";
    } else {
      trouble.sentence = "lease " + lease + ": " + record.json["detail"].text();
    }
  }
  if (!record) return session.fail(*record.trouble);
  lease = record.json["job_id"].text();
  return std::nullopt;
}

int run_job(Session& session, RunOptions& run, const Grammar& grammar) {
  if (run.submit.command.empty())
    return session.fail(kExitUsage, "a command is missing, as in: gpu-cli run -it --gpus 1 bash", "usage");
  if (!run.lease.empty()) {
    if (const std::optional<int> failed = find_job_of_lease(session, run.lease)) return *failed;
    const ExecOptions inside{.job = run.lease,
                             .command = run.submit.command,
                             .interactive = run.interactive || run.terminal,
                             .terminal = run.terminal};
    return run_session(session, inside).exit_code;
  }
  if (const std::string refused = refused_option(run); !refused.empty())
    return session.fail(kExitUsage, refused, "usage");
  if (run.submit.time_limit.empty()) run.submit.time_limit = kBoundTimeDefault;
  run.submit.wait = run.submit.logs = false;
  return run.interactive || run.terminal ? run_session_job(session, run, grammar)
                                         : run_streamed(session, run, grammar);
}

}  // namespace

Reply wait_until_running(Session& session, const std::string& job) {
  WaitNotice notice(session.io(), job);
  Patience patience(session.io());
  for (int looks = 0;; ++looks) {
    Reply record = poll_job(session, job, Duration{});
    if (!record) {
      if (record.trouble->passing && patience.wait_again()) continue;
      return record;
    }
    patience.renew();
    const bool settled = is_final(record.json) || is_held(record.json);
    if (settled || record.json["state"].text() == "running") return record;
    notice.look(record.json);
    session.io().pause(looks < 50 ? milliseconds(100) : looks < 150 ? milliseconds(500) : seconds(2));
  }
}

int run_lease_shell(Session& session, const LeaseShell& shell) {
  RunOptions run{.submit = {}, .interactive = true, .terminal = true};
  Grammar grammar;  // Nothing of it is given: what is asked for stands in the options.
  declare_submit_options(grammar, run.submit);
  run.submit.gpus = shell.gpus;
  run.submit.gpu_model = shell.gpu_model;
  run.submit.time_limit = shell.time_limit;
  run.submit.name = "shell";
  run.submit.labels = {std::string(kLeaseLabel) + "=1"};
  run.submit.preemption_mode = "cancel";
  run.submit.command = {"/bin/sh", "-c", std::string(kLoginShell)};
  return run_job(session, run, grammar);
}

Action define_run(Grammar& grammar) {
  const auto run = std::make_shared<RunOptions>();
  declare_submit_options(grammar, run->submit);
  grammar.free_short_name("-t");
  grammar.flag("-i,--stdin", run->interactive, "Pass standard input to the command");
  grammar.flag("-t,--tty", run->terminal, "Give the command a terminal, and standard input; one node");
  grammar
      .option(
          "--in-lease", "LEASE", &run->lease,
          "Run it in this lease, with the GPUs that it holds, instead of in a job of its own; the lease's "
          "job, or its id at the allocation door")
      .completes(Complete::kJob);
  grammar.takes_bare_command(run->submit.command, "Command and its arguments, run without a shell");
  grammar.details(
      "Submits a job, says why it waits, shows its output as it appears, and exits with its exit code. "
      "Accepts the options of gpu-cli submit, except that -t is not --time. A job without --time gets a "
      "limit of 12 hours.");
  grammar.details(
      "The job ends with this command: Ctrl-C, SIGTERM, a closed terminal or a closed output pipe cancels "
      "it. Ctrl-\\ leaves it running, and says how to attach again. If gpu-cli is killed by SIGKILL, the job "
      "continues until it ends or reaches its time limit.");
  grammar.details(
      "With -t, or -i, the command is a session in the job, as of gpu-cli exec, and the job ends with the "
      "session, however that ends: also two minutes after its start if gpu-cli has not connected by then. "
      "Ctrl-P Ctrl-Q, or ~. at the start of a line, detaches, leaves both running and says how to return. A "
      "restart of the scheduler or of the agent ends the session, and with it the job: run without -i and -t "
      "what must survive such a restart.");
  grammar.example("gpu-cli run -it --gpus 1 --time 1h bash", "a shell with a GPU");
  grammar.example("gpu-cli run --gpus 4 ./train.sh --epochs 3", "see the output of a job as it appears");
  grammar.example("gpu-cli run --in-lease job-12 -- ./train.sh", "with the GPUs of a lease");
  grammar.example("gpu-cli run -i python3 - < analyse.py", "a program from standard input");
  return [run, &grammar](Session& session) { return run_job(session, *run, grammar); };
}

}  // namespace gpusched::cli
