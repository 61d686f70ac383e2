#include "node/agent/agent_main.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "config/config.h"
#include "log/log.h"
#include "node/agent/agent.h"
#include "node/agent/agent_file.h"
#include "node/agent/doctor.h"
#include "node/agent/join.h"
#include "node/link/trust.h"
#include "node/process/box_flags.h"
#include "ops/machine.h"
#include "ops/notify.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr const char* kVersion = GPUSCHED_VERSION;
constexpr const char* kConfigDefault = "/etc/gpu-scheduler/agent.yaml";
constexpr const char* kDataFolderDefault = "/var/lib/gpu-agent";

struct CommandLine {
  AgentOptions agent;
  int64_t grace_ms = 10'000;
  int64_t hook_timeout_s = 60;
  int64_t check_every_s = 300;
  int64_t clock_skew_s = 60;
  int64_t share_memory_grace_s = 0;
  int64_t order_patience_s = 60;
  int64_t log_limit_mb = 256;
  int64_t log_quota_mb = 20'480;
  int64_t keep_logs_hours = 168;
  bool tls = false;
  std::string ca_file, ca;
  std::string service_ports;
  std::vector<std::string> labels;
  std::vector<std::string> gpu_faults;
  std::optional<uint16_t> metrics_port;
  std::string metrics_address = "127.0.0.1";
  BoxRequestFields box;
  LogOptions log;
  std::string log_level = "info";
  std::string config;
};

void declare_node(CLI::App& app, CommandLine& line) {
  AgentOptions& agent = line.agent;
  app.add_option(
      "--scheduler", agent.scheduler,
      "gRPC address of the scheduler, HOST:PORT, or unix:PATH of its socket for agents (default: that of "
      "this machine's scheduler, which needs no token)");
  app.add_option("--node", agent.node_name, "Name of this node, the same at every start");
  app.add_option("--data-dir", agent.data_folder,
                 "Folder for records and output of attempts; created if missing");
  app.add_option("--sim-gpus", agent.sim_gpus,
                 "Simulated GPUs instead of real ones, such as 4xA100-SXM4-80GB,2xH100-SXM5-80GB:mig (:mig: "
                 "in MIG mode)");
  app.add_option("--sim-links", agent.sim_links,
                 "Links of simulated GPUs: sizes of the NVLink islands, such as 4,4 (default: unknown)");
  app.add_option("--cpus", agent.cpus,
                 "Number of CPU cores to offer (default: all that this process may use)")
      ->check(CLI::Range(int64_t{1}, int64_t{limits::kCpuCoresMax}));
  app.add_option("--memory-mb", agent.memory_mb,
                 "Memory to offer, in MB (default: all memory of the machine)")
      ->check(CLI::Range(int64_t{1}, limits::kMegabytesMax));
  app.add_option("--label", line.labels, "Label of the node, NAME=VALUE; may be repeated");
  app.add_option("--address", agent.address,
                 "Host name or IP address at which other nodes reach this one, for MASTER_ADDR and host "
                 "files of gangs (default: the node's name)");
  app.add_option("--service-ports", line.service_ports,
                 "Ports that replicas of services get, FIRST-LAST, below those that the system gives out "
                 "itself (default: 10000-19999)");
  app.add_option("--token-file", agent.token_file, "File with the scheduler's shared token (default: none)");
  app.add_flag("--tls", line.tls,
               "Speak TLS to the scheduler and believe the machine's own authorities, unless --ca-file or "
               "--ca names another one");
  app.add_option("--ca-file", line.ca_file,
                 "File with the certificates (PEM) of the authorities that may sign the scheduler's "
                 "certificate; read at each connection (default: none, without TLS)");
  app.add_option("--ca", line.ca,
                 "Fingerprint of the authority's certificate or of the scheduler's own, sha256:HEX, instead "
                 "of a file (default: none)");
  app.add_option(
      "--metrics-port", line.metrics_port,
      "Port of this agent's own metrics for Prometheus; 0: any free port, named in the log (default: none)");
  app.add_option(
      "--metrics-address", line.metrics_address,
      "Address of that port; if it is not loopback, requests need the shared token (default: 127.0.0.1)");
}

void declare_output(CLI::App& app, CommandLine& line) {
  AgentOptions& agent = line.agent;
  app.add_option("--grace-ms", line.grace_ms,
                 "Milliseconds between SIGTERM and SIGKILL, unless the scheduler sets them (default: 10000)")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400'000}));
  app.add_option("--keep-finished", agent.finished_kept,
                 "Number of ended attempts whose output is kept (default: 10000)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{10'000'000}));
  app.add_option("--log-limit-mb", line.log_limit_mb,
                 "MB kept of each job's standard output, and as much of its standard error, the newest; 0: "
                 "all (default: 256)")
      ->check(CLI::Range(int64_t{0}, limits::kMegabytesMax));
  app.add_option("--log-quota-mb", line.log_quota_mb,
                 "MB kept of the output of all jobs; beyond it the output of the oldest ended jobs is "
                 "removed; 0: no limit (default: 20480)")
      ->check(CLI::Range(int64_t{0}, limits::kMegabytesMax));
  app.add_option("--keep-logs-hours", line.keep_logs_hours,
                 "Hours that output is kept after the end of its job; 0: no limit (default: 168)")
      ->check(CLI::Range(int64_t{0}, limits::kSettingMax.ns / hours(1).ns));
}

void declare_hooks(CLI::App& app, CommandLine& line) {
  HookOptions& hooks = line.agent.hooks;
  app.add_option("--prolog", hooks.prolog,
                 "Program to run before each attempt; if it fails, the node takes no new jobs and the job "
                 "runs elsewhere");
  app.add_option("--epilog", hooks.epilog, "Program to run after each attempt, before its GPUs are released");
  app.add_option("--health-script", hooks.health_script,
                 "Program to run with the checks of the node; while it fails, the node takes no new jobs");
  app.add_option(
      "--reboot-command", hooks.reboot_command,
      "Command that gpu-cli node reboot runs on this node, such as 'systemctl reboot' (default: none)");
  app.add_option("--gpu-reset-command", hooks.gpu_reset_command,
                 "Command that resets the GPU $GPU_SCHEDULER_GPU_UUID, run once nothing uses a GPU whose "
                 "fault requires a reset, such as 'nvidia-smi --gpu-reset -i $GPU_SCHEDULER_GPU_UUID' "
                 "(default: none; the GPU waits for an operator)");
}

void declare_gpu_faults(CLI::App& app, CommandLine& line) {
  app.add_option("--gpu-faults", line.gpu_faults,
                 "Action for a fault of a GPU, CODE=RULE: an Xid or another code, and ignore, note, drain, "
                 "reset or replace, such as 79=replace; may be repeated");
  app.add_option("--share-memory-grace-s", line.share_memory_grace_s,
                 "Seconds after which a job that uses more GPU memory than its share is ended; 0: it only "
                 "gets a warning (default: 0)")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400}));
  app.add_option("--order-patience-s", line.order_patience_s,
                 "Seconds that gpu-shim may take to start an attempt, or to end one after its grace period, "
                 "before the agent ends it itself (default: 60)")
      ->check(CLI::Range(int64_t{1}, int64_t{3'600}));
  app.add_option("--kernel-log", line.agent.kernel_log,
                 "Kernel log from which Xids are read that the GPU driver does not report itself; empty: "
                 "none (default: /dev/kmsg)");
}

void declare_checks(CLI::App& app, CommandLine& line) {
  AgentOptions& agent = line.agent;
  app.add_option("--hook-timeout-s", line.hook_timeout_s,
                 "Timeout of each of these programs in seconds (default: 60)")
      ->check(CLI::Range(int64_t{1}, int64_t{3'600}));
  app.add_option("--check-every-s", line.check_every_s, "Seconds between checks of the node (default: 300)")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}));
  app.add_option("--disk-free-mb", agent.hooks.disk_free_mb_min,
                 "Minimum free space, in MB, on the disk of the data folder; with less the node takes no new "
                 "jobs (default: 512, or 5 % of a small disk)")
      ->check(CLI::Range(int64_t{0}, limits::kMegabytesMax));
  app.add_option("--clock-skew-s", line.clock_skew_s,
                 "Maximum difference, in seconds, from the scheduler's clock; beyond it the node takes no "
                 "new jobs (default: 60)")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}));
  app.add_option("--gpu-daemons", agent.gpu_daemons,
                 "Programs that stay on GPUs without belonging to a job, comma-separated; only executables "
                 "owned by root count (default: MPS, DCGM, display and persistence daemons)")
      ->delimiter(',');
  app.add_option("--nvidia-smi", agent.nvidia_smi,
                 "Path of nvidia-smi, used if NVML finds no GPUs (default: the one in $PATH)");
}

void declare(CLI::App& app, CommandLine& line) {
  AgentOptions& agent = line.agent;
  app.set_version_flag("--version", std::string("gpu-agent ") + kVersion);
  declare_node(app, line);
  declare_output(app, line);
  declare_box(app, agent.box, line.box);
  app.add_option("--nvml-library", agent.nvml_library,
                 "Path of libnvidia-ml.so.1 (default: that of the system)")
      ->envname("GPU_SCHEDULER_NVML_LIBRARY");
  declare_hooks(app, line);
  declare_gpu_faults(app, line);
  declare_checks(app, line);
  app.add_option("--shim", agent.shim_program, "Path of gpu-shim (default: next to this program)");
  app.add_option("--config", line.config,
                 "YAML file of these options, with '_' for '-'; the command line takes precedence")
      ->envname("GPU_AGENT_CONFIG");
  declare_container_options(app, agent.containers);
  app.add_option("--log,--log-file", line.log.path, "Log file (default: standard error)");
  app.add_option("--log-level", line.log_level,
                 "Minimum level of log lines: debug, info, warning or error (default: info)");
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
  line.agent.order_patience = seconds(line.order_patience_s);
  line.agent.share_memory_grace = seconds(line.share_memory_grace_s);
  line.agent.log_bytes_max = line.log_limit_mb << 20;
  line.agent.all_logs_bytes_max = line.log_quota_mb << 20;
  line.agent.logs_kept = hours(line.keep_logs_hours);
  if (!line.service_ports.empty()) {
    const std::optional<PortRange> ports = parse_port_range(line.service_ports);
    if (!ports) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "--service-ports: '" + line.service_ports +
                              "' is not two ports from 1024 to 65535, such as 10000-19999"};
    }
    line.agent.service_ports = *ports;
  }
  if (line.metrics_port)
    line.agent.metrics = MetricsPortOptions{.address = line.metrics_address, .port = *line.metrics_port};
  const Result<LinkTls> tls = link_tls_of(line.tls, line.ca_file, line.ca);
  if (!tls) return tls.error();
  line.agent.tls = *tls;
  if (line.agent.scheduler.empty() && !line.agent.tls.on) line.agent.scheduler = usual_agent_socket();
  const std::pair<const char*, const std::string*> required[] = {{"--scheduler", &line.agent.scheduler},
                                                                 {"--node", &line.agent.node_name},
                                                                 {"--data-dir", &line.agent.data_folder}};
  for (const auto& [name, value] : required) {
    if (!value->empty()) continue;
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = std::string(name) + " is missing (see gpu-agent --help)"};
  }
  if (line.agent.node_name.size() > limits::kNameBytesMax) {
    return Error{.code = ErrorCode::kInvalidArgument, .message = "--node: the name is longer than 253 bytes"};
  }
  const bool plain = std::all_of(line.agent.address.begin(), line.agent.address.end(),
                                 [](unsigned char byte) { return byte > ' ' && byte < 0x7F; });
  if (!plain || line.agent.address.size() > limits::kNameBytesMax) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "--address: give one host name or IP without blanks"};
  }
  for (const std::string& label : line.labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "--label '" + label + "' is not NAME=VALUE"};
    }
    line.agent.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  std::string faults;
  for (const std::string& change : line.gpu_faults) faults += change + ",";
  const Result<FaultTable> table = FaultTable::parse(faults);
  if (!table) return table.error();
  line.agent.gpu_faults = *table;
  if (const Result<Unit> boxed = complete_box(line.agent.box, line.box); !boxed) return boxed.error();
  const Result<LogLevel> level = parse_log_level(line.log_level);
  if (!level) return level.error();
  line.log.level = *level;
  return Unit{};
}

constexpr const char* kDescription =
    "Runs jobs on this machine for a gpu-scheduler. Jobs outlive it: stop, upgrade and start it at any "
    "time.\n"
    "\n"
    "Commands:\n"
    "  gpu-agent join HOST:PORT --token-file F    make this machine a node of a scheduler\n"
    "  gpu-agent doctor                           check this machine, and show how to correct it\n"
    "  gpu-agent checkpointed                     within a job: report that its work is saved up to now";

/// The command line with its file, as it was read at one time.
struct Loaded {
  CLI::App app{kDescription, "gpu-agent"};
  CommandLine line;
  std::string without_effect;  ///< Variables of the environment that change nothing.
};

/// Throws CLI::ParseError for the command line's own mistakes. A doctor takes options that do not suffice.
Result<std::unique_ptr<Loaded>> load(const std::vector<std::string>& arguments, bool must_suffice = true) {
  auto loaded = std::make_unique<Loaded>();
  declare(loaded->app, loaded->line);
  // Once for the name of the file, then with what it says.
  if (const Result<Unit> parsed = parse_with_settings(loaded->app, arguments, {}, {}); !parsed)
    return parsed.error();
  std::vector<AgentSetting> settings;
  if (!loaded->line.config.empty()) {
    Result<std::vector<AgentSetting>> read = read_agent_file(loaded->line.config);
    if (!read) return read.error();
    settings = std::move(*read);
  }
  const Result<AgentEnvironment> environment = read_agent_environment(process_environment());
  if (!environment) return environment.error();
  settings = with_environment(std::move(settings), environment->settings);
  auto whole = std::make_unique<Loaded>();
  whole->without_effect = environment->without_effect;
  declare(whole->app, whole->line);
  const AppMaker scratch = [](const std::function<void(CLI::App&)>& use) {
    Loaded alone;
    declare(alone.app, alone.line);
    use(alone.app);
  };
  if (const Result<Unit> parsed = parse_with_settings(whole->app, arguments, settings, scratch); !parsed)
    return parsed.error();
  const Result<Unit> completed = complete(whole->line);
  if (!completed && must_suffice) return completed.error();
  return whole;
}

/// SIGHUP: reads everything again, takes what a running agent can, and names the rest.
class AgentReloader {
 public:
  AgentReloader(std::vector<std::string> arguments, std::unique_ptr<Loaded> running)
      : arguments_(std::move(arguments)), running_(std::move(running)) {}

  std::string reload() {
    try {
      Result<std::unique_ptr<Loaded>> fresh = load(arguments_);
      if (!fresh) return refused(fresh.error().message);
      if (const Result<Unit> log = log_reopen((*fresh)->line.log); !log) return refused(log.error().message);
      return take(std::move(*fresh));
    } catch (const CLI::ParseError& error) {
      return refused(error.what());
    }
  }

 private:
  static std::string refused(const std::string& why) {
    log_event(LogLevel::kError, "agent", "config_not_reloaded", {},
              {{"why", why}, {"kept", "the whole old configuration"}});
    return "the new configuration was rejected and the old one stays in effect: " + why;
  }
  std::string take(std::unique_ptr<Loaded> fresh) {
    const std::vector<OptionChange> changes = option_changes(running_->app, fresh->app);
    std::string restart;
    for (const OptionChange& change : changes) {
      const bool live = change.name == "log" || change.name == "log-level";
      if (!live) restart += (restart.empty() ? "" : ", ") + change.name;
      log_event(LogLevel::kInfo, "agent", "config_changed", {},
                {{"key", change.name},
                 {"old", change.before},
                 {"new", change.after},
                 {"holds", live ? "now" : "after a restart, which ends no job"}});
    }
    running_ = std::move(fresh);
    log_event(LogLevel::kInfo, "agent", "config_reloaded", {},
              {{"changes", changes.size()}, {"needs_restart", restart}});
    if (!restart.empty()) return "a restart is needed for " + restart;
    return changes.empty() ? "reloaded, no changes" : "reloaded";
  }

  const std::vector<std::string> arguments_;
  std::unique_ptr<Loaded> running_;
};

/// `gpu-agent doctor [OPTIONS] [--json]`.
int run_doctor(std::vector<std::string> arguments) {
  const bool json = std::erase(arguments, "--json") > 0;
  const bool names_file = std::ranges::any_of(
      arguments, [](const std::string& word) { return word == "--config" || word.starts_with("--config="); });
  if (!names_file && arguments.empty() && access(kConfigDefault, R_OK) == 0)
    arguments.push_back(std::string("--config=") + kConfigDefault);
  Diagnosis diagnosis;
  try {
    const Result<std::unique_ptr<Loaded>> loaded = load(arguments, false);
    if (loaded) {
      AgentOptions options = (*loaded)->line.agent;
      if (options.data_folder.empty()) options.data_folder = kDataFolderDefault;
      diagnosis = examine_node(options, (*loaded)->line.config);
    } else {
      diagnosis.add({.check = "config",
                     .verdict = Verdict::kFail,
                     .detail = loaded.error().message,
                     .mend = "gpu-agent --help    # its options are the keys of the file"});
    }
  } catch (const CLI::CallForHelp&) {
    std::fputs(
        "gpu-agent doctor [OPTIONS] [--json]\n"
        "\n"
        "Checks everything that an agent with these options (default: those of "
        "/etc/gpu-scheduler/agent.yaml)\n"
        "needs from this machine and from its scheduler. Exit status: 0 all checks pass, 1 warnings, 2 "
        "failures.\n",
        stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see gpu-agent --help)", 2);
  }
  const std::string text = json ? diagnosis.json("gpu-agent", ops::host_name()) : diagnosis.text();
  std::fputs(text.c_str(), stdout);
  return diagnosis.exit_code();
}

int signal_descriptor(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // Before the first thread, so that all of them have it.
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

int serve(const AgentOptions& options, AgentReloader& reloader, const ServiceNotifier& manager) {
  const int stop = signal_descriptor({SIGTERM, SIGINT});
  const int hang_up = signal_descriptor({SIGHUP});
  int status = 0;
  Result<std::unique_ptr<Agent>> agent = Agent::open(options);
  if (agent) {
    const std::string node = "node " + options.node_name + ": ";
    std::string connection = "connecting to " + options.scheduler;
    manager.ready(node + connection);
    AgentDuties duties;
    duties.reload_descriptor = hang_up;
    duties.reload = [&] {
      signalfd_siginfo ignored;
      while (read(hang_up, &ignored, sizeof ignored) > 0) {
      }
      manager.reloading();
      const std::string outcome = reloader.reload();
      manager.ready(node + connection + "; " + outcome);
    };
    duties.pulse_every = manager.keep_alive_every();
    duties.pulse = [&] { manager.keep_alive(); };
    duties.status = [&](const std::string& text) {
      connection = text;
      manager.status(node + connection);
    };
    (*agent)->run(stop, std::move(duties));
    manager.stopping();
  } else {
    log_flush();
    status = fail(agent.error().message, 1);
  }
  if (agent) agent->reset();
  close(stop);
  close(hang_up);
  return status;
}

/// `gpu-agent checkpointed`, in a job.
int run_checkpointed() {
  const char* const path = std::getenv(shim::kCheckpointVariable);
  if (path == nullptr || *path == 0) {
    std::fputs(
        "gpu-agent checkpointed: GPU_CHECKPOINT_FILE is not set; run this command within a job that is not a "
        "container\n",
        stderr);
    return 2;
  }
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool good = file >= 0 && futimens(file, nullptr) == 0;
  if (!good) std::fprintf(stderr, "gpu-agent checkpointed: %s: %s\n", path, std::strerror(errno));
  if (file >= 0) close(file);
  return good ? 0 : 1;
}

}  // namespace

int run_agent(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (!arguments.empty() && arguments[0] == "doctor")
    return run_doctor({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "checkpointed") return run_checkpointed();
  if (!arguments.empty() && arguments[0] == "join") return run_join(argc - 1, argv + 1, kVersion);
  std::unique_ptr<Loaded> loaded;
  try {
    Result<std::unique_ptr<Loaded>> read = load(arguments);
    if (!read) return fail(read.error().message, 2);
    loaded = std::move(*read);
  } catch (const CLI::Success& asked) {
    Loaded help;
    declare(help.app, help.line);
    return help.app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see gpu-agent --help)", 2);
  }
  const ServiceNotifier manager = ServiceNotifier::take_from_environment();
  signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) close(signal_descriptor({number}));
  const CommandLine line = loaded->line;
  if (const Result<Unit> set_up = log_set_up(line.log); !set_up) return fail(set_up.error().message, 1);
  if (!loaded->without_effect.empty()) {
    log_event(LogLevel::kWarning, "agent", "config_without_effect", {},
              {{"keys", loaded->without_effect},
               {"message",
                "these environment variables have no effect on the agent; they may be kept or removed"}});
  }
  AgentReloader reloader(arguments, std::move(loaded));
  const int status = serve(line.agent, reloader, manager);
  log_shut_down();
  return status;
}

}  // namespace gpusched
