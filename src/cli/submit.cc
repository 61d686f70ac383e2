#include <cmath>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "cli/commands.h"
#include "cli/units.h"
#include "cli/verbs.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kScriptBytesMax = 1 << 20;
constexpr int kSignalBase = 128;

/// What was asked for. A number that was not given stays empty, so that the scheduler's default holds.
struct SubmitOptions {
  std::string name;
  std::optional<int64_t> gpus;
  std::string gpu_model;
  std::string gpu_memory;  ///< As written, such as "80G".
  std::optional<double> cpus;
  std::string memory;
  std::optional<int64_t> priority;
  std::string image;
  std::string script;
  std::string time_limit;
  std::string working_directory;
  std::vector<std::string> environment;  ///< "K=V", or "K" for the caller's own value.
  std::vector<std::string> labels;       ///< "K=V"
  std::optional<int64_t> retries;
  bool require_feasible = false;
  bool wait = false;
  bool logs = false;
  std::vector<std::string> command;
};

Error bad_option(const std::string& option, const std::string& why) {
  return {.code = ErrorCode::kInvalidArgument, .message = option + ": " + why};
}

Result<std::string> file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kScriptBytesMax + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) return bad_option("--script", "cannot read " + path);
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kScriptBytesMax) return bad_option("--script", path + " is larger than 1 MiB");
  return text;
}

/// A file's text, standard input's, or the text itself: what has a blank or a line's end in it and names no
/// file.
Result<std::string> script_text(const CliIo& io, const std::string& script) {
  Result<std::string> text = script;
  if (script == "-") {
    text = io.read_stdin();
  } else if (std::ifstream(script).good()) {
    text = file_text(script);
  } else if (script.find_first_of(" \t\n;") == std::string::npos) {
    return bad_option("--script", "there is no file " + script + " (a command goes behind --)");
  }
  if (text.ok() && text->find_first_not_of(" \t\r\n") == std::string::npos) {
    return bad_option("--script", "it is empty");
  }
  return text;
}

/// "K=V" texts as a map; a bare "K" takes its value from this process when `io` is given.
Result<std::map<std::string, std::string>> pairs(const std::string& option,
                                                 const std::vector<std::string>& texts, const CliIo* io) {
  std::map<std::string, std::string> out;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    if (key.empty() || (equals == std::string::npos && io == nullptr)) {
      return bad_option(option, "\"" + text + "\" is not KEY=VALUE");
    }
    out[key] = equals == std::string::npos ? io->environment(key.c_str()) : text.substr(equals + 1);
  }
  return out;
}

/// What people call the job when they do not say.
std::string default_name(const SubmitOptions& submit) {
  std::string name;
  if (!submit.command.empty()) {
    name = submit.command.front();
  } else if (submit.script != "-" && submit.script.find_first_of(" \t\n;") == std::string::npos) {
    name = submit.script;
  } else if (submit.script.empty()) {
    name = submit.image;
  }
  while (name.ends_with('/')) name.pop_back();
  name.erase(0, name.rfind('/') + 1);
  return name;
}

Result<Unit> add_amounts(const SubmitOptions& submit, JsonObjectWriter& body) {
  if (submit.gpus) body.add("gpu_count", *submit.gpus);
  if (!submit.gpu_model.empty()) body.add("gpu_model", submit.gpu_model);
  if (!submit.gpu_memory.empty()) {
    const Result<int64_t> mb = parse_size_mb(submit.gpu_memory);
    if (!mb) return bad_option("--gpu-memory", mb.error().message);
    body.add("gpu_memory_mb", *mb);
  }
  if (submit.cpus) {
    if (!std::isfinite(*submit.cpus) || *submit.cpus < 0)
      return bad_option("--cpus", "expected a number from 0 on");
    body.add("cpu_cores", *submit.cpus);
  }
  if (!submit.memory.empty()) {
    const Result<int64_t> mb = parse_size_mb(submit.memory);
    if (!mb) return bad_option("--mem", mb.error().message);
    body.add("memory_mb", *mb);
  }
  if (submit.priority) body.add("priority", *submit.priority);
  if (submit.retries) body.add("retries", *submit.retries);
  if (!submit.time_limit.empty()) {
    const Result<int64_t> limit = parse_duration_seconds(submit.time_limit);
    if (!limit) return bad_option("--time", limit.error().message);
    body.add("max_runtime_seconds", *limit);
  }
  return Unit{};
}

/// The body of POST /jobs.
Result<std::string> job_body(const Options& options, const SubmitOptions& submit, const CliIo& io) {
  if (submit.logs && !submit.wait) return bad_option("--logs", "goes with --wait");
  if (submit.command.empty() && submit.script.empty() && submit.image.empty()) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "nothing to run; write the command behind --, or name a file with --script"};
  }
  if (!submit.command.empty() && !submit.script.empty()) {
    return bad_option("--script", "excludes a command behind --");
  }
  JsonObjectWriter body;
  if (!options.tenant_id.empty()) body.add("tenant_id", options.tenant_id);
  const std::string name = submit.name.empty() ? default_name(submit) : submit.name;
  if (!name.empty()) body.add("name", name);
  const Result<Unit> amounts = add_amounts(submit, body);
  if (!amounts) return amounts.error();
  if (!submit.command.empty()) body.add("command", submit.command);
  if (!submit.script.empty()) {
    const Result<std::string> script = script_text(io, submit.script);
    if (!script) return script.error();
    body.add("script", *script);
  }
  if (!submit.image.empty()) body.add("image", submit.image);
  if (!submit.working_directory.empty()) body.add("working_directory", submit.working_directory);
  const auto environment = pairs("--env", submit.environment, &io);
  if (!environment) return environment.error();
  if (!environment->empty()) body.add("environment", *environment);
  const auto labels = pairs("--label", submit.labels, nullptr);
  if (!labels) return labels.error();
  if (!labels->empty()) body.add("labels", *labels);
  if (submit.require_feasible) body.add("require_feasible", true);
  return body.text();
}

/// The job's own exit code, or what stands for it, with one line about a failure.
int exit_like(const Session& session, const std::string& job, const Json& record) {
  const std::string state = record["state"].text();
  if (state == "completed") return kExitOk;
  const std::string reason = record["reason"].text();
  const std::string message = record["message"].text();
  const auto signal = static_cast<int>(record["signal"].integer());
  const auto exit_code = static_cast<int>(record["exit_code"].integer());
  std::string sentence = job + " " + (state.empty() ? "ended" : state);
  int code = kExitJobFailed;
  if (reason == "timeout") {
    sentence += ": it reached its time limit";
    code = kExitTimeLimit;
  } else if (state == "failed" && signal != 0) {
    sentence += ": ended by signal " + std::to_string(signal);
    code = kSignalBase + signal;
  } else if (state == "failed" && exit_code != 0) {
    sentence += ": exit code " + std::to_string(exit_code);
    code = exit_code;
  } else if (!message.empty()) {
    sentence += ": " + message;
  }
  return session.fail(code, sentence, reason.empty() ? "failed" : reason);
}

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

int submit_job(Session& session, const SubmitOptions& submit) {
  const Options& options = session.options();
  const Result<std::string> body = job_body(options, submit, session.io());
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply submitted = session.post_once("/jobs", *body, random_key());
  if (!submitted) return session.fail(*submitted.trouble);
  const std::string job = submitted.json["job_id"].text();
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

Action define_submit(Grammar& grammar) {
  const auto submit = std::make_shared<SubmitOptions>();
  grammar.option("--name", "NAME", &submit->name, "Name for people; else the command's");
  grammar.option("--gpus", "N", &submit->gpus, "GPUs that it needs");
  grammar.option("--gpu-model", "MODEL", &submit->gpu_model,
                 "Only this model: A100 fits NVIDIA A100-SXM4-80GB");
  grammar.option("--gpu-memory", "SIZE", &submit->gpu_memory, "Memory of all its GPUs together, such as 80G");
  grammar.option("--cpus", "N", &submit->cpus, "CPU cores, also parts such as 0.5");
  grammar.option("--mem", "SIZE", &submit->memory, "Memory, such as 8G");
  grammar.option("--priority", "N", &submit->priority, "Higher starts earlier");
  grammar.option("--image", "IMAGE", &submit->image, "Container image to run it in");
  grammar.option("--script", "FILE", &submit->script,
                 "Run by /bin/sh instead of a command: a file, - for standard input, or the text itself");
  grammar.option("--time", "SPAN", &submit->time_limit, "End it after so long, such as 90s, 2h or 1d12h");
  grammar.option("--workdir", "DIR", &submit->working_directory, "Folder on the node to run in");
  grammar.option("--env", "K=V", &submit->environment, "K=V, or K for its value here; repeatable");
  grammar.option("--label", "K=V", &submit->labels, "K=V; repeatable");
  grammar.option("--retries", "N", &submit->retries, "Run it again so often when it exits with a failure");
  grammar.flag("--require-feasible", submit->require_feasible,
               "Refuse it when no registered node could run it");
  grammar.flag("--wait", submit->wait, "Wait for its end and exit with its exit code");
  grammar.flag("--logs", submit->logs, "With --wait: show its output while it runs");
  grammar.takes_command(submit->command, "The command and its words, run without a shell");
  return [submit](Session& session) { return submit_job(session, *submit); };
}

}  // namespace gpusched::cli
