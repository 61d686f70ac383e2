#include "cli/verbs/submit/submit.h"

#include <memory>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/signal_watch.h"
#include "cli/terminal/text.h"
#include "cli/verbs/submit/script_text.h"

namespace gpusched::cli {
namespace {

/// The record of an interactive job when it is decided whether it starts: it waits no longer.
Reply wait_until_decided(Session& session, const std::string& job) {
  constexpr Duration kRetryPause = milliseconds(200);
  constexpr int64_t kTriesMax = (limits::kInteractiveSecondsMax + 60) * 5;
  Reply record;
  for (int64_t tries = 0; tries < kTriesMax; ++tries) {
    record = poll_job(session, job, Duration{});
    if (record && record.json["state"].text() != "pending") break;
    if (!record && !record.trouble->passing) break;
    session.io().pause(kRetryPause);
  }
  return record;
}

int submit_job(Session& session, SubmitOptions& submit, const Grammar& grammar) {
  const Options& options = session.options();
  const Result<Duration> patience = wait_span(submit.timeout);
  if (!patience) return session.fail(kExitUsage, patience.error().message, "usage");
  const bool retry = await_scheduler(session, !submit.no_retry);
  const Result<std::string> body = submission_body(session, submit, grammar);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply submitted = submit_once(session, *body, retry);
  if (!submitted) return session.fail(*submitted.trouble);
  const std::string job = submitted.json["job_id"].text();
  if (submit.now) {
    const Reply record = wait_until_decided(session, job);
    if (!record) return session.fail(*record.trouble);
    const bool given_up = is_final(record.json) && record.json["reason"].text() == "not_at_once";
    if (given_up) return exit_like(session, job, record.json);
  } else if (!submit.require_feasible) {
    warn_if_never(session, job, *body, submit.wait);
  }
  if (!submit.wait) {
    session.io().out(options.json ? json_line(submitted) : job + "\n");
    return kExitOk;
  }
  // Standard output belongs to the job's own, or to the record.
  if (submit.logs || options.json) {
    session.io().err(job + "\n");
  } else {
    session.io().out(job + "\n");
  }
  if (!submit.timeout.empty() && !submit.logs) return wait_for_jobs(session, {job}, submit.timeout, false);
  const Time until = session.io().wall_now() + *patience;
  const std::unique_ptr<SignalWatch> leaving = watch_leaving(session, {job});
  const Reply record = submit.logs ? show_until_final(session, job, 1, false, until, submit.timeout)
                                   : wait_until_final(session, job, until);
  if (!record) return session.fail(*record.trouble);
  if (options.json) session.io().out(json_line(record));
  return exit_like(session, job, record.json);
}

}  // namespace

constexpr std::string_view kRootName = "root";

void say_repeating(const Session& session, const Trouble& trouble) {
  const bool silent =
      trouble.code == "unreachable" || trouble.code == "timeout" || trouble.code == "outcome_unknown";
  session.io().err("gpu-cli: " + printable(silent ? "the scheduler does not answer" : trouble.sentence) +
                   "; repeating the submission for up to 60 s, under one key: nothing is submitted twice\n");
}

bool await_scheduler(Session& session, bool retry) {
  if (!retry || !session.may_find_token()) return retry;
  Patience patience(session.io());
  for (bool said = false;;) {
    // That it is there now says nothing of when its token was looked for: it may have come up just behind
    // that, or gone away just before. One whose certificate is refused is there, and has its say below.
    if (session.find_token_again()) return true;
    if (!std::exchange(said, true)) say_repeating(session, {.code = "unreachable"});
    if (!patience.wait_again()) return false;
  }
}

Reply submit_once(Session& session, const std::string& body, bool retry) {
  const std::string key = random_key();
  Patience patience(session.io());
  for (bool said = false;;) {
    Reply reply = session.post_once("/jobs", body, key);
    // A refusal for lack of room or of rate (429, a full disk) does not pass within seconds.
    const bool away = reply.trouble && reply.trouble->passing && reply.trouble->code != "storage_full" &&
                      !reply.trouble->throttled;
    if (!away || !retry) return reply;
    if (!std::exchange(said, true)) say_repeating(session, *reply.trouble);
    if (!patience.wait_again()) return reply;
  }
}

namespace {

void warn(const CliIo& io, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) io.err("gpu-cli: " + printable(warning) + "\n");
}

/// Refuses words that no request can carry, with the option that has them.
Result<Unit> check_words(const SubmitOptions& submit, const Grammar& grammar) {
  const auto check = [](const std::string& what, const std::string& word) -> Result<Unit> {
    const std::string place = not_utf8(word);
    if (place.empty()) return Unit{};
    return Error{.code = ErrorCode::kInvalidArgument, .message = what + ": " + place};
  };
  Result<Unit> good = Unit{};
  for (const OptionSpec& option : grammar.options()) {
    // Their variables are checked one by one.
    if (option.name == "--env" || option.name == "--secret-env" || option.name == "--export") continue;
    if (option.name == "--script") continue;  // A file's name is not sent.
    if (const auto* const text = std::get_if<std::string*>(&option.target)) good = check(option.name, **text);
    if (const auto* const list = std::get_if<std::vector<std::string>*>(&option.target)) {
      for (std::size_t i = 0; good && i < (*list)->size(); ++i) good = check(option.name, (**list)[i]);
    }
    if (!good) return good;
  }
  for (const auto& [what, words] :
       {std::pair{"COMMAND", &submit.command}, std::pair{"ARG", &submit.script_arguments}}) {
    for (std::size_t i = 0; good && i < words->size(); ++i)
      good = check(std::string(what) + " (word " + std::to_string(i + 1) + ")", (*words)[i]);
  }
  return good;
}

}  // namespace

Result<std::string> submission_body(const Session& session, SubmitOptions& submit, const Grammar& grammar) {
  // The clients that exist do the same.
  const bool names_nothing =
      submit.command.empty() && submit.script.empty() && submit.script_file.empty() && submit.image.empty();
  if (names_nothing) {
    submit.command = {kCommandOfNone};
    session.io().err("gpu-cli: no command is given, so the job runs " + std::string(kCommandOfNone) + "\n");
  }
  std::optional<Script> script;
  if (!submit.script.empty() || !submit.script_file.empty()) {
    Result<Script> read = read_script(submit, session.io());
    if (!read) return read.error();
    script = std::move(*read);
    SubmitOptions lines;
    Grammar lines_grammar;
    declare_submit_options(lines_grammar, lines);
    const ScriptLines read_lines = read_script_lines(*script, lines_grammar);
    warn(session.io(), script->notes);
    warn(session.io(), read_lines.warnings);
    if (!read_lines.problems.empty()) {
      // All of them at once; the last one is the command's error.
      std::vector<std::string> problems = read_lines.problems;
      const std::string last = problems.back();
      problems.pop_back();
      warn(session.io(), problems);
      return Error{.code = ErrorCode::kInvalidArgument, .message = last};
    }
    submit.tenant = read_lines.account;
    submit.slurm_tasks = read_lines.asks_for_tasks;
    grammar.take_missing_from(lines_grammar);
  }
  // Whoever the scheduler does not know cannot say whom a job runs as; and nobody means to run jobs as root
  // by being it.
  const CliIo& io = session.io();
  const bool known = session.is_known() && io.login_name && io.login_name() != kRootName;
  if (submit.user.empty() && !known) submit.user = "-";
  if (const Result<Unit> good = check_words(submit, grammar); !good) return good.error();
  std::vector<std::string> warnings;
  Result<std::string> body = job_body(session.options(), submit, script, io, warnings);
  if (body) warn(io, warnings);
  return body;
}

void declare_submission(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("What runs");
  grammar
      .option("--script", "SCRIPT", &submit.script,
              "A script file, as SCRIPT; or, if there is no such file, the text of a script, such as "
              "nvidia-smi")
      .completes(Complete::kFile);
  grammar
      .argument("SCRIPT", &submit.script_file, "Script file, or - for standard input; its arguments follow")
      .optional()
      .greedy()
      .completes(Complete::kFile);
  grammar.argument("ARG", &submit.script_arguments, "Arguments of the script").optional();
  grammar.takes_command(submit.command, "Command and its arguments, run without a shell");
}

Action define_submit(Grammar& grammar) {
  const auto submit = std::make_shared<SubmitOptions>();
  declare_submit_options(grammar, *submit);
  grammar.heading("What runs");
  grammar
      .option("--stream", "FILE", &submit->stream,
              "Submit each line of this file (- for standard input), a submission of the native API as JSON; "
              "prints the ids in order, each once the job is durable; excludes all other options about jobs")
      .completes(Complete::kFile);
  declare_submission(grammar, *submit);
  grammar.command_may_be_missing();
  grammar.details(
      "Prints the job's id. The job runs the command after `--`, a script, or the image's own command; "
      "without any of them it runs nvidia-smi.");
  grammar.details(
      "A script may contain options: lines that begin with `#GPU` before its first command, such as `#GPU "
      "--gpus 2 --time 2h`. The command line takes precedence; labels, variables, mounts and limits are "
      "merged. The script is sent with the job. A first line that names an interpreter (`#!/bin/bash`) makes "
      "it a file of the node, at most 960 KiB, which the interpreter runs: `$0` is its path there. Without "
      "such a line `/bin/sh -c` runs its text, at most 128 KiB. The variable GPU_SCHEDULER_SCRIPT_DIR has "
      "the folder that it was submitted from.");
  grammar.details(
      "`#SBATCH` lines are read too: an option with the same meaning here applies, any other is refused with "
      "what to write instead. `#GPU` lines take precedence.");
  grammar.details(
      "The job's environment has PATH, HOME, USER, LANG, TMPDIR and the variables that `--env` and "
      "`--export` name, nothing else of this shell; the variables about GPUs are always set by the node. "
      "Relative paths are made absolute here, and refer to the node's file system.");
  grammar.details(
      "In the paths of --output, --error and --input the node replaces %j with the job's id, %A with the "
      "array's id, %a with the index in the array, %x with the job's name, %t with the member, %u with the "
      "user, %N with the node's name, and %% with a percent sign.");
  grammar.details(
      "A submission survives a restart of the scheduler: while there is no answer, it is repeated under the "
      "same key for up to 60 s, so that only one job is created, and standard error says so. With "
      "`--no-retry` it fails at once instead; exit code 5 then means that the job may have been submitted.");
  grammar.details(
      "A job that no registered node can ever run waits for one that can, and standard error says so at "
      "once; with `--require-feasible` it is refused instead.");
  grammar.details(
      "SIZE is 512M, 8G or 1.5T, in powers of 1024; a plain number is in MB. SPAN is 90s, 45m, 2h, 1d or a "
      "sum such as 1h30m; 2:00:00 and 1-12:00:00 are understood too. WHEN is +2h, 18:30, \"tomorrow 10:00\" "
      "or "
      "2025-01-31T09:00:00, in this machine's time zone unless it ends in Z or +01:00.");
  grammar.example("gpu-cli submit --gpus 1 --wait --logs -- nvidia-smi",
                  "run a command, see its output, exit with its exit code");
  grammar.details(
      "An array is one job that stands for all of its elements. Each element is a job of its own, called "
      "job-12[3] after its index, and is created shortly before it runs. In the paths of --output, --error "
      "and --input, `%a` is the index and `%A` the array's number.");
  grammar.example("gpu-cli submit --array 1-500%50 --gpus 1 --name sweep -- ./sweep.sh",
                  "five hundred jobs, fifty at a time");
  grammar.example("gpu-cli submit --after ok:job-12 -- ./evaluate.sh", "once job-12 has completed");
  grammar.example("gpu-cli submit --gpus 2 --time 2h train.sh --epochs 3", "a script with its arguments");
  grammar.example("gpu-cli submit --stream jobs.ndjson", "many jobs, one line of JSON each");
  return [submit, &grammar](Session& session) {
    if (!submit->stream.empty()) {
      if (!submit->command.empty() || !submit->script.empty() || !submit->script_file.empty() ||
          submit->wait) {
        return session.fail(kExitUsage,
                            "--stream: its lines describe the jobs completely; leave out the other options",
                            "usage");
      }
      return submit_stream(session, submit->stream, !submit->no_retry);
    }
    return submit_job(session, *submit, grammar);
  };
}

}  // namespace gpusched::cli
