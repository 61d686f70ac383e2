#include "cli/verbs/submit/submit.h"

#include <memory>
#include <mutex>
#include <thread>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

/// Copies the job's two outputs to ours, each in a thread of its own, until the job has ended.
class OutputCopier {
 public:
  OutputCopier(const Session& session, const std::string& job)
      : out_([this, job, own = session.fork()]() mutable { copy(own, job, "stdout", own.io().out); }),
        err_([this, job, own = session.fork()]() mutable { copy(own, job, "stderr", own.io().err); }) {}
  OutputCopier(const OutputCopier&) = delete;
  OutputCopier& operator=(const OutputCopier&) = delete;
  ~OutputCopier() {
    out_.join();
    err_.join();
  }

 private:
  void copy(Session& session, const std::string& job, const std::string& stream,
            const std::function<void(std::string_view)>& write) {
    const Reply reply = follow_logs(session, job, stream, 1, false, [&](std::string_view data) {
      const std::lock_guard lock(mutex_);
      write(data);
      return true;
    });
    // A job that never started has no output, which is no mistake here.
    if (reply || reply.trouble->code == "log_not_found") return;
    const std::lock_guard lock(mutex_);
    session.fail(*reply.trouble);
  }

  std::mutex mutex_;  // Before the threads that use it.
  std::thread out_;
  std::thread err_;
};

/// The record of an interactive job when it is decided whether it starts: it waits no longer.
Reply wait_until_decided(Session& session, const std::string& job) {
  constexpr Duration kPause = milliseconds(200);
  constexpr int64_t kTriesMax = (limits::kInteractiveSecondsMax + 60) * 5;
  Reply record;
  for (int64_t tries = 0; tries < kTriesMax; ++tries) {
    record = poll_job(session, job, Duration{});
    if (record && record.json["state"].text() != "pending") break;
    if (!record && !record.trouble->passing) break;
    session.io().pause(kPause);
  }
  return record;
}

int submit_job(Session& session, SubmitOptions& submit, const Grammar& grammar) {
  const Options& options = session.options();
  const Result<std::string> body = submission_body(session, submit, grammar);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply submitted = session.post_once("/jobs", *body, random_key());
  if (!submitted) return session.fail(*submitted.trouble);
  const std::string job = submitted.json["job_id"].text();
  if (submit.now) {
    const Reply record = wait_until_decided(session, job);
    if (!record) return session.fail(*record.trouble);
    const bool given_up = is_final(record.json) && record.json["reason"].text() == "not_at_once";
    if (given_up) return exit_like(session, job, record.json);
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
  if (!submit.timeout.empty()) return wait_for_jobs(session, {job}, submit.timeout, false);
  Reply record;
  if (submit.logs) {
    const OutputCopier copier(session, job);
    record = wait_until_final(session, job);
  } else {
    record = wait_until_final(session, job);
  }
  if (!record) return session.fail(*record.trouble);
  if (options.json) session.io().out(json_line(record));
  return exit_like(session, job, record.json);
}

}  // namespace

constexpr std::string_view kRootName = "root";

Result<std::string> submission_body(const Session& session, SubmitOptions& submit, const Grammar& grammar) {
  std::optional<Script> script;
  if (!submit.script.empty() || !submit.script_file.empty()) {
    Result<Script> read = read_script(submit, session.io());
    if (!read) return read.error();
    script = std::move(*read);
    SubmitOptions lines;
    Grammar lines_grammar;
    declare_submit_options(lines_grammar, lines);
    std::vector<std::string> warnings;
    const Result<Unit> understood = read_script_lines(*script, lines_grammar, warnings);
    for (const std::string& warning : warnings) session.io().err("gpu-cli: " + printable(warning) + "\n");
    if (!understood) return understood.error();
    grammar.take_missing_from(lines_grammar);
  }
  // Whoever the scheduler does not know cannot say whom a job runs as; and nobody means to run jobs as root
  // by being it.
  const CliIo& io = session.io();
  const bool known = session.has_token() && io.login_name && io.login_name() != kRootName;
  if (submit.user.empty() && !known) submit.user = "-";
  return job_body(session.options(), submit, script, io);
}

void declare_submission(Grammar& grammar, SubmitOptions& submit) {
  grammar
      .option("--script", "FILE", &submit.script,
              "A script, as SCRIPT; or its text itself, when it has a blank or a semicolon and names no file")
      .completes(Complete::kFile);
  grammar
      .argument("SCRIPT", &submit.script_file,
                "A script file, or - for standard input; what follows are its arguments")
      .optional()
      .greedy()
      .completes(Complete::kFile);
  grammar.argument("ARG", &submit.script_arguments, "The script's arguments").optional();
  grammar.takes_command(submit.command, "The command and its words, run without a shell");
}

Action define_submit(Grammar& grammar) {
  const auto submit = std::make_shared<SubmitOptions>();
  declare_submit_options(grammar, *submit);
  grammar
      .option("--stream", "FILE", &submit->stream,
              "Submit each line of this file, or of - for standard input: a submission of the native API as "
              "JSON; "
              "prints the ids in their order, each once it is durable; nothing else about a job may be given")
      .completes(Complete::kFile);
  declare_submission(grammar, *submit);
  grammar.details(
      "Prints the job's id. It runs either the command behind `--`, a script, or the image's own command.");
  grammar.details(
      "A script may hold options: lines that begin with `#GPU` before its first command, such as `#GPU "
      "--gpus 2 --time "
      "2h`. The command line wins over them; labels, variables, mounts and limits of both are taken. The "
      "script itself travels with the "
      "job, at most 128 KiB of it. `/bin/sh` runs it, or the shell, Python, Perl or Ruby that its first line "
      "names "
      "(`#!/bin/bash`).");
  grammar.details(
      "The job's environment has PATH, HOME, USER, LANG, TMPDIR and what `--env` and `--export` name, "
      "nothing else of "
      "this shell's; the variables about its GPUs are always the node's. Paths that are relative here are "
      "made "
      "absolute, and mean the node's file system.");
  grammar.details(
      "In the files of --output, --error and --input the node puts in %j for the job's id, %A for the "
      "array's name and %a for the index in it, %x for the job's name, %t for the member, %u for the user, "
      "%N for the node's name, and %% for a percent sign.");
  grammar.details(
      "SIZE is 512M, 8G or 1.5T, by powers of 1024; a bare number is in MB. SPAN is 90s, 45m, 2h, 1d or a "
      "sum such as 1h30m.");
  grammar.example("gpu-cli submit --gpus 1 --wait --logs -- nvidia-smi",
                  "run something, see its output, end as it ends");
  grammar.details(
      "An array is one job that stands for all of its elements. They are jobs of their own, called job-12[3] "
      "by "
      "their index, and come into being shortly before they run. `%a` in the paths of --output, --error and "
      "--input is the index, `%A` the array's number.");
  grammar.example("gpu-cli submit --array 1-500%50 --gpus 1 --name sweep -- ./sweep.sh",
                  "five hundred jobs, fifty at a time");
  grammar.example("gpu-cli submit --after ok:job-12 -- ./evaluate.sh", "once job-12 has completed");
  grammar.example("gpu-cli submit --gpus 2 --time 2h train.sh --epochs 3", "a script with its arguments");
  grammar.example("gpu-cli submit --stream jobs.ndjson", "many jobs, each in a line of JSON");
  return [submit, &grammar](Session& session) {
    if (!submit->stream.empty()) {
      if (!submit->command.empty() || !submit->script.empty() || !submit->script_file.empty() ||
          submit->wait) {
        return session.fail(kExitUsage, "--stream: its lines say all about the jobs; leave the rest out",
                            "usage");
      }
      return submit_stream(session, submit->stream);
    }
    return submit_job(session, *submit, grammar);
  };
}

}  // namespace gpusched::cli
