// gpu-cli exec and shell: an interactive command in a running job.
#include <cstdint>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/verbs/sessions/lease_shell.h"
#include "cli/verbs/sessions/session_screen.h"

namespace gpusched::cli {
namespace {

void add_place(Grammar& grammar, ExecOptions& options, bool job_required = true) {
  ArgumentSpec& job = grammar.argument("JOB", &options.job, "Job id").completes(Complete::kJob);
  job.required = job_required;
  grammar.option("--attempt", "N", &options.attempt, "Attempt, counted from 1 (default: the latest)")
      .range(1, 1'000'000'000);
  grammar.option("--member", "N", &options.member, "Member of a gang, counted from 0").range(0, 1'000'000);
  grammar.option("--session", "N", &options.session, "Resume this detached session").range(1, INT64_MAX);
}

/// The lease of a shell that is given no job.
struct OwnLease {
  std::optional<int64_t> gpus;
  LeaseShell shell;
};

}  // namespace

Action define_exec(Grammar& grammar) {
  const auto options = std::make_shared<ExecOptions>();
  add_place(grammar, *options);
  grammar.flag("-i,--stdin", options->interactive, "Pass standard input to the command");
  grammar.flag("-t,--tty", options->terminal, "Allocate a terminal; standard input must be one");
  grammar.takes_bare_command(options->command, "Command and its arguments, run without a shell");
  grammar.details(
      "The command runs beside the job's own processes: as the same user, in the same working directory, "
      "with the same environment, GPUs and limits. It ends when the job's attempt ends, and does not affect "
      "the job. gpu-cli exits with its exit code, or with 128 + N if signal N ended it.");
  grammar.details(
      "With -t, Ctrl-P Ctrl-Q, or ~. at the start of a line, detaches and leaves the session running; "
      "--session resumes it within 12 hours. If the connection breaks, the command gets SIGHUP, as from a "
      "closed terminal.");
  grammar.example("gpu-cli exec job-12 nvidia-smi", "look at the job's GPUs");
  grammar.example("gpu-cli exec job-12 -it -- python3", "a prompt beside it");
  grammar.example("gpu-cli exec job-12 -i -- tar -x < more.tar", "bring files in");
  return [options](Session& session) {
    if (options->command.empty() && options->session == 0) {
      return session.fail(kExitUsage, "a command is missing, as in: gpu-cli exec JOB nvidia-smi", "usage");
    }
    return run_session(session, *options).exit_code;
  };
}

Action define_shell(Grammar& grammar) {
  const auto options = std::make_shared<ExecOptions>();
  const auto own = std::make_shared<OwnLease>();
  add_place(grammar, *options, false);
  grammar.option("--gpus", "N", &own->gpus, "Without JOB: hold this many GPUs for the shell").range(1, 64);
  grammar.option("--gpu-model", "MODEL", &own->shell.gpu_model, "Without JOB: GPUs of this model");
  grammar.option("--time", "SPAN", &own->shell.time_limit, "Without JOB: for this long (default: 12h)");
  grammar.details(
      "Opens a login shell of the job's user, in a terminal, beside the job's processes. Ctrl-P Ctrl-Q, or "
      "~. at the start of a line, detaches and leaves it running; see gpu-cli exec --help.");
  grammar.details(
      "Without JOB, holds GPUs for a shell of its own: the job that holds them ends with the shell, and when "
      "gpu-cli is interrupted or loses its terminal, as with gpu-cli run -it.");
  grammar.example("gpu-cli shell job-12", "beside a running job");
  grammar.example("gpu-cli shell --gpus 1 --time 2h", "a GPU and a shell, until the shell ends");
  return [options, own](Session& session) {
    if (options->job.empty() == !own->gpus) {
      return session.fail(kExitUsage,
                          "name either a job, as in: gpu-cli shell job-12, or GPUs to hold, as in: gpu-cli "
                          "shell --gpus 1",
                          "usage");
    }
    if (own->gpus) {
      own->shell.gpus = *own->gpus;
      return run_lease_shell(session, own->shell);
    }
    options->interactive = true;
    options->terminal = true;
    return run_session(session, *options).exit_code;
  };
}

}  // namespace gpusched::cli
