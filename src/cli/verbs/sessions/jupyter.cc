// gpu-cli jupyter: a notebook server in a job, in the browser of this machine.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text/shell_words.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/text.h"
#include "cli/verbs/sessions/bound_job.h"
#include "cli/verbs/sessions/port_forward.h"
#include "cli/verbs/sessions/session_capture.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

constexpr uint16_t kUsualPort = 8888;
constexpr int kTroublesMax = 6;  ///< Refused sessions in a row; about six seconds.
constexpr const char* kJupyterAddress = "127.0.0.1";

/// The job's command. Before it stand the lines of `notebook_lines`: $d, a folder for what the server says
/// about itself, and $v, the Python environment of the caller. Its arguments are for Jupyter.
///
/// The token is made on the node and stands in a file that only the job's user may read: neither the
/// submission nor the job's output has it. Jupyter shows no token that it was given.
constexpr std::string_view kNotebook =
    "[ -d \"$v/bin\" ] && PATH=$v/bin:$PATH\n"
    "[ -d \"$HOME/.local/bin\" ] && PATH=$PATH:$HOME/.local/bin\n"
    "if command -v jupyter-lab > /dev/null; then j=jupyter-lab\n"
    "elif command -v jupyter-notebook > /dev/null; then j=jupyter-notebook\n"
    "else\n"
    "  echo \"gpu-cli jupyter: neither jupyter-lab nor jupyter-notebook is in the job's PATH on $(uname -n)"
    " ($PATH).\" >&2\n"
    "  echo 'Install one there: pip install --user jupyterlab. Or say where it is: --env"
    " PATH=/path/to/bin:/usr/bin:/bin. Or take an --image that has it.' >&2\n"
    "  exit 127\n"
    "fi\n"
    "mkdir -m 700 \"$d\" || exit 1\n"
    "[ -w \"${HOME:-}\" ] || export HOME=\"$d\"\n"
    "[ \"$(id -u)\" != 0 ] || set -- \"$@\" --allow-root\n"
    "[ -n \"${JUPYTER_TOKEN:-}\" ] || JUPYTER_TOKEN=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')\n"
    "export PATH JUPYTER_TOKEN JUPYTER_RUNTIME_DIR=\"$d\"\n"
    "exec $j --no-browser --ip=127.0.0.1 --port=$((20000 + $$ % 10000)) --port-retries=200 \"$@\"\n";

/// A session's command: waits half a minute for the server's file about itself, which has its port and token.
constexpr std::string_view kFindServer =
    "n=0\n"
    "while [ $n -lt 300 ]; do\n"
    "  for f in \"$d\"/jpserver-*.json \"$d\"/nbserver-*.json; do [ -s \"$f\" ] && exec cat \"$f\"; done\n"
    "  n=$((n + 1)); sleep 0.1\n"
    "done\n"
    "exit 1\n";

struct JupyterOptions {
  SubmitOptions submit;
  int64_t port = 0;  ///< 0: the usual one, or a free one.
  bool keep = false;
};

/// A server that answers in the job.
struct NotebookServer {
  uint16_t port = 0;  ///< On the loopback of the job's network.
  std::string token;  ///< Empty: it asks for a password of its own.
  std::string base = "/";
  bool has_tls = false;

  std::string url(const std::string& place) const {
    return (has_tls ? "https://" : "http://") + place + base +
           (token.empty() ? "" : "?token=" + url_encoded(token));
  }
};

/// Lines before both scripts.
std::string notebook_lines(const std::string& key) {
  return "d=\"${TMPDIR:-/tmp}/gpu-cli-jupyter-" + key + "\"\n";
}

/// The environment that the caller has activated: nodes that share it have its Jupyter.
std::string active_environment(const CliIo& io) {
  const std::string venv = io.environment("VIRTUAL_ENV");
  return venv.empty() ? io.environment("CONDA_PREFIX") : venv;
}

std::optional<NotebookServer> read_server(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  if (!json) return std::nullopt;  // It is being written.
  const int64_t port = (*json)["port"].integer();
  if (port < 1 || port > UINT16_MAX) return std::nullopt;
  NotebookServer server{.port = static_cast<uint16_t>(port), .token = (*json)["token"].text()};
  if (const std::string base = (*json)["base_url"].text(); base.starts_with('/')) server.base = base;
  server.has_tls = (*json)["secure"].boolean();
  return server;
}

/// The server in the running job once it answers; nothing: the job has ended, or cannot be looked into, and
/// `exit_code` says how that was said.
std::optional<NotebookServer> find_server(Session& session, const std::string& job, const std::string& key,
                                          int& exit_code) {
  const std::vector<std::string> command = {"/bin/sh", "-c", notebook_lines(key) + std::string(kFindServer)};
  Patience patience(session.io());
  int troubles = 0;
  while (true) {
    const CapturedCommand found = capture_session(session, job, command);
    if (!found.trouble) {
      patience.renew();
      troubles = 0;
      if (std::optional<NotebookServer> server = read_server(found.output)) return server;
    }
    const Reply record = poll_job(session, job, Duration{});
    if (record && is_final(record.json)) {
      // Jupyter, or the shell that did not find it, has said why.
      follow_logs(session, job, "stderr", 0, true, [&](std::string_view data) {
        session.io().err(data);
        return true;
      });
      exit_code = exit_like(session, job, record.json);
      if (exit_code == kExitOk) session.io().err("gpu-cli: " + job + " has ended before Jupyter answered\n");
      return std::nullopt;
    }
    if (!found.trouble) {
      session.io().err("gpu-cli: Jupyter has not answered yet; see what it says: gpu-cli logs " + job + "\n");
      continue;
    }
    // A job that has just ended is shown as running for a moment, and has no session any more.
    const bool may_pass = found.trouble->passing || ++troubles <= kTroublesMax;
    if (may_pass && patience.wait_again()) continue;
    exit_code = session.fail(*found.trouble);
    return std::nullopt;
  }
}

/// Listens before a job is submitted: a port that is taken is said at once.
Result<Unit> listen_here(PortListeners& listeners, int64_t port) {
  if (port != 0) return listeners.add(kJupyterAddress, static_cast<uint16_t>(port));
  if (listeners.add(kJupyterAddress, kUsualPort)) return Unit{};
  return listeners.add(kJupyterAddress, 0);
}

std::string refused_jupyter_option(const SubmitOptions& submit) {
  if (!submit.array.empty()) return "--array: a notebook is one job";
  if (!submit.nodes.empty()) return "--nodes: a notebook runs on one node";
  if (submit.hold) return "--hold: Jupyter is waited for; leave it out";
  if (!submit.input.empty()) return "--input: a notebook server reads no input";
  if (!submit.timeout.empty()) return "--timeout: not with gpu-cli jupyter; limit the job with --time";
  return "";
}

void make_notebook_job(const CliIo& io, SubmitOptions& submit, const std::string& key) {
  const std::vector<std::string> environment = {submit.image.empty() ? active_environment(io) : ""};
  const std::string script =
      notebook_lines(key) + "v=" + shell_line(environment) + "\n" + std::string(kNotebook);
  std::vector<std::string> words = {"/bin/sh", "-c", script, "gpu-cli-jupyter"};
  words.insert(words.end(), submit.command.begin(), submit.command.end());
  submit.command = std::move(words);
  if (submit.name.empty()) submit.name = "jupyter";
  if (submit.time_limit.empty()) submit.time_limit = kBoundTimeDefault;
  // A server that starts again elsewhere has another port and token, and none of the notebooks' values.
  if (submit.preemption_mode.empty()) submit.preemption_mode = "cancel";
  submit.wait = submit.logs = false;
}

void say_url(const Session& session, const std::string& job, const NotebookServer& server,
             const std::string& place, bool keep) {
  const std::string url = server.url(place);
  if (session.options().json) {
    JsonObjectWriter json;
    json.add("job_id", job);
    json.add("url", url);
    json.add("local", place);
    json.add("port", int64_t{server.port});
    session.io().out(json.text() + "\n");
  } else {
    session.io().out(printable(url) + "\n");
  }
  session.io().err(keep ? "gpu-cli: Ctrl-C ends the forward; " + job + " continues\n"
                        : "gpu-cli: Ctrl-C ends " + job + " with its notebooks' values\n");
}

int run_jupyter(Session& session, JupyterOptions& options, const Grammar& grammar) {
  if (const std::string refused = refused_jupyter_option(options.submit); !refused.empty())
    return session.fail(kExitUsage, refused, "usage");
  PortListeners listeners;
  if (const Result<Unit> listens = listen_here(listeners, options.port); !listens)
    return session.fail(kExitRefused, listens.error().message, "port_in_use");
  const std::string key = random_key();
  make_notebook_job(session.io(), options.submit, key);
  BoundJob bound(session);
  int exit_code = 0;
  const std::string job = submit_bound(session, options.submit, grammar, bound, exit_code);
  if (job.empty()) return exit_code;
  if (options.keep) bound.release(ways_back(job));
  const auto give_up = [&] {
    if (!options.keep) cancel_job(session, job);
    return exit_code;
  };
  const Reply running = wait_until_running(session, job);
  if (!running) {
    exit_code = session.fail(*running.trouble);
    return give_up();
  }
  if (is_held(running.json)) {
    exit_code = session.fail(kExitHeld, job + " was held before it started; run it again", "held");
    return give_up();
  }
  if (!is_final(running.json))
    session.io().err("gpu-cli: " + job + " " + printable(running.json["message"].text()) +
                     "; Jupyter starts\n");
  const std::optional<NotebookServer> server = find_server(session, job, key, exit_code);
  if (!server) return give_up();
  const std::string& place = listeners.places().front();
  if (options.keep) {
    bound.release("come back to it with: gpu-cli port-forward " + job + " " +
                  std::to_string(listeners.ports().front()) + ":" + std::to_string(server->port) +
                  "\nend it with: gpu-cli cancel " + job + "\n");
  }
  say_url(session, job, *server, place, options.keep);
  const StopSign never;
  const Reply end = forward_ports(session, {.job = job, .remote = {server->port}}, listeners, never);
  if (!end) {
    exit_code = session.fail(*end.trouble);
    return give_up();
  }
  exit_code = exit_like(session, job, end.json);
  if (exit_code == kExitOk) session.io().err("gpu-cli: " + printable(end_sentence(job, end.json)) + "\n");
  return exit_code;
}

}  // namespace

Action define_jupyter(Grammar& grammar) {
  const auto options = std::make_shared<JupyterOptions>();
  declare_submit_options(grammar, options->submit);
  grammar.heading("Notebook");
  grammar
      .option("--port", "N", &options->port,
              "Port of this machine (default: 8888, or a free one when that is taken)")
      .range(1, UINT16_MAX);
  grammar.flag("--keep", options->keep, "Leave the job running when this command ends");
  grammar.takes_command(options->submit.command, "Arguments for Jupyter");
  grammar.command_may_be_missing();
  grammar.details(
      "Submits a job that starts JupyterLab, or the classic notebook, waits for it, forwards its port to "
      "this "
      "machine's loopback as gpu-cli port-forward does, and prints the address with its token. Accepts the "
      "options of gpu-cli submit. A job without --time gets a limit of 12 hours.");
  grammar.details(
      "Jupyter is looked for in the job's PATH, in the Python environment that is active here if the node "
      "has "
      "that folder, and in ~/.local/bin. It listens on the loopback of its node, on a free port, and lets in "
      "who has the token; the token is made on the node and is in a file of the job's user alone.");
  grammar.details(
      "The job ends with this command: Ctrl-C, SIGTERM or a closed terminal cancels it. With --keep it "
      "continues, and standard error says how to come back. A preempted notebook is cancelled, unless "
      "--preemption-mode says otherwise.");
  grammar.example("gpu-cli jupyter --gpus 1 --time 4h", "a notebook with a GPU");
  grammar.example("gpu-cli jupyter --gpus 1 --keep -- --ServerApp.root_dir=/data",
                  "in another folder; it goes on when this command ends");
  return [options, &grammar](Session& session) { return run_jupyter(session, *options, grammar); };
}

}  // namespace gpusched::cli
