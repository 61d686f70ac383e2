#include "node/agent_main.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "base/limits.h"
#include "log/log.h"
#include "node/agent.h"

namespace gpusched {
namespace {

constexpr const char* kVersion = GPUSCHED_VERSION;

struct CommandLine {
  AgentOptions agent;
  int64_t grace_ms = 10'000;
  int64_t hook_timeout_s = 60;
  int64_t check_every_s = 300;
  int64_t clock_skew_s = 60;
  std::vector<std::string> labels;
  LogOptions log;
  std::string log_level = "info";
};

void declare(CLI::App& app, CommandLine& line) {
  AgentOptions& agent = line.agent;
  app.set_version_flag("--version", std::string("gpu-agent ") + kVersion);
  app.add_option("--scheduler", agent.scheduler, "Scheduler's gRPC address, HOST:PORT");
  app.add_option("--node", agent.node_name, "This node's name, the same at every start");
  app.add_option("--data-dir", agent.data_folder, "Folder for attempts' records and output; made if missing")
      ->required();
  app.add_option("--sim-gpus", agent.sim_gpus,
                 "Simulated GPUs instead of real ones: 4xA100-SXM4-80GB,2xH100-SXM5-80GB");
  app.add_option("--cpus", agent.cpus, "CPU cores to offer (default: all this process may use)")
      ->check(CLI::Range(int64_t{1}, int64_t{limits::kCpuCoresMax}));
  app.add_option("--memory-mb", agent.memory_mb, "Memory to offer (default: all of the machine)")
      ->check(CLI::Range(int64_t{1}, limits::kMegabytesMax));
  app.add_option("--label", line.labels, "NAME=VALUE, told to the scheduler; may be repeated");
  app.add_option("--token-file", agent.token_file, "The scheduler's shared token (default: none)");
  app.add_option("--grace-ms", line.grace_ms,
                 "Between SIGTERM and SIGKILL, where the scheduler names no other (default: 10000)")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400'000}));
  app.add_option("--keep-finished", agent.finished_kept,
                 "Ended attempts whose output is kept (default: 10000)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{10'000'000}));
  app.add_option("--nvml-library", agent.nvml_library, "Path of libnvidia-ml.so.1 (default: the system's)")
      ->envname("GPU_SCHEDULER_NVML_LIBRARY");
  HookOptions& hooks = agent.hooks;
  app.add_option(
      "--prolog", hooks.prolog,
      "Program to run before each attempt; when it fails, the node is held and the job goes elsewhere");
  app.add_option("--epilog", hooks.epilog,
                 "Program to run after each attempt, before its GPUs are free again");
  app.add_option("--health-script", hooks.health_script,
                 "Program to run with the node's checks; when it fails, the node takes no new work");
  app.add_option("--reboot-command", hooks.reboot_command,
                 "What gpu-cli node reboot runs here, such as 'systemctl reboot' (default: none)");
  app.add_option("--hook-timeout-s", line.hook_timeout_s, "How long each of these may take (default: 60)")
      ->check(CLI::Range(int64_t{1}, int64_t{3'600}));
  app.add_option("--check-every-s", line.check_every_s, "Between checks of the node (default: 300)")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}));
  app.add_option("--disk-free-mb", hooks.disk_free_mb_min,
                 "With less left in the data folder's disk the node takes no new work (default: 512, or 5 % "
                 "of a small disk)")
      ->check(CLI::Range(int64_t{0}, limits::kMegabytesMax));
  app.add_option("--clock-skew-s", line.clock_skew_s,
                 "With a clock further from the scheduler's the node takes no new work (default: 60)")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}));
  app.add_option("--shim", agent.shim_program, "Path of gpu-shim (default: beside this program)");
  app.add_option("--log,--log-file", line.log.path, "Where log lines go (default: standard error)");
  app.add_option("--log-level", line.log_level, "debug, info, warning or error (default: info)");
}

/// A one-line error on standard error.
int fail(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-agent: %s\n", message.c_str());
  return status;
}

Result<Unit> complete(CommandLine& line) {
  line.agent.version = kVersion;
  line.agent.grace = milliseconds(line.grace_ms);
  line.agent.hooks.timeout = seconds(line.hook_timeout_s);
  line.agent.hooks.check_every = seconds(line.check_every_s);
  line.agent.hooks.clock_skew_max = seconds(line.clock_skew_s);
  const std::pair<const char*, const std::string*> required[] = {{"--scheduler", &line.agent.scheduler},
                                                                 {"--node", &line.agent.node_name},
                                                                 {"--data-dir", &line.agent.data_folder}};
  for (const auto& [name, value] : required) {
    if (!value->empty()) continue;
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = std::string(name) + " is needed (see gpu-agent --help)"};
  }
  if (line.agent.node_name.size() > limits::kNameBytesMax) {
    return Error{.code = ErrorCode::kInvalidArgument, .message = "--node: a name has at most 253 bytes"};
  }
  for (const std::string& label : line.labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "--label '" + label + "' is not NAME=VALUE"};
    }
    line.agent.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  const Result<LogLevel> level = parse_log_level(line.log_level);
  if (!level) return level.error();
  line.log.level = *level;
  return Unit{};
}

}  // namespace

int run_agent(int argc, char** argv) {
  CLI::App app(
      "Runs jobs on this machine for a gpu-scheduler. Jobs outlive it: stop, upgrade and start it at any "
      "time.",
      "gpu-agent");
  CommandLine line;
  declare(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see gpu-agent --help)", 2);
  }
  if (const Result<Unit> completed = complete(line); !completed) return fail(completed.error().message, 2);

  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // Before the first thread, so that all of them have it.
  signal(SIGPIPE, SIG_IGN);
  const int stop = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (const Result<Unit> set_up = log_set_up(line.log); !set_up) return fail(set_up.error().message, 1);
  int status = 0;
  {
    Result<std::unique_ptr<Agent>> agent = Agent::open(line.agent);
    if (agent) {
      (*agent)->run(stop);
    } else {
      log_flush();
      status = fail(agent.error().message, 1);
    }
  }
  log_shut_down();
  close(stop);
  return status;
}

}  // namespace gpusched
