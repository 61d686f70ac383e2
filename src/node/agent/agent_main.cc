#include "node/agent/agent_main.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

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
#include "base/text/host_name.h"
#include "base/utf8.h"
#include "config/config.h"
#include "grammar/program.h"
#include "log/log.h"
#include "node/agent/agent.h"
#include "node/agent/agent_file.h"
#include "node/agent/doctor.h"
#include "node/agent/join.h"
#include "node/kubernetes/status_agent.h"
#include "node/link/scheduler_addresses.h"
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
  std::vector<std::string> schedulers;
  std::vector<std::string> labels;
  std::vector<std::string> gpu_faults;
  std::vector<std::string> gpu_daemons;  ///< Empty: the usual ones.
  int64_t finished_kept = AgentOptions{}.finished_kept;
  std::optional<int64_t> metrics_port;
  std::string metrics_address = "127.0.0.1";
  BoxRequestFields box;
  kubernetes::ApiOptions kubernetes;
  LogOptions log;
  std::string log_level = "info";
  std::string config;
};

void declare_scheduler(Grammar& grammar, CommandLine& line) {
  AgentOptions& agent = line.agent;
  grammar.heading("Scheduler");
  grammar
      .option("--scheduler", "ADDRESSES", &line.schedulers,
              "gRPC address of the scheduler, HOST:PORT, or unix:PATH of its socket for agents; of several "
              "schedulers that are one, all addresses, comma-separated (default: that of this machine's "
              "scheduler, which needs no token)")
      .from_environment("GPU_AGENT_SCHEDULER");
  grammar
      .option("--token-file", "FILE", &agent.token_file,
              "File with the scheduler's shared token (default: none)")
      .completes(Complete::kFile);
  grammar.flag("--tls", line.tls,
               "Speak TLS to the scheduler and believe the machine's own authorities, unless --ca-file or "
               "--ca names another one");
  grammar
      .option("--ca-file", "FILE", &line.ca_file,
              "File with the certificates (PEM) of the authorities that may sign the scheduler's "
              "certificate; read at each connection (default: none, without TLS)")
      .completes(Complete::kFile);
  grammar.option("--ca", "sha256:HEX", &line.ca,
                 "Fingerprint of the authority's certificate or of the scheduler's own, instead of a file "
                 "(default: none)");
}

void declare_node(Grammar& grammar, CommandLine& line) {
  AgentOptions& agent = line.agent;
  grammar.heading("Node");
  grammar.option("--node", "NAME", &agent.node_name, "Name of this node, the same at every start");
  grammar
      .option("--data-dir", "DIR", &agent.data_folder,
              "Folder for records and output of attempts; created if missing")
      .completes(Complete::kFolder);
  grammar.option("--sim-gpus", "GPUS", &agent.sim_gpus,
                 "Simulated GPUs instead of real ones, such as 4xA100-SXM4-80GB,2xH100-SXM5-80GB:mig (:mig: "
                 "in MIG mode)");
  grammar.option("--sim-links", "SIZES", &agent.sim_links,
                 "Links of simulated GPUs: sizes of the NVLink islands, such as 4,4 (default: unknown)");
  grammar
      .option("--cpus", "N", &agent.cpus,
              "Number of CPU cores to offer (default: all that this process may use)")
      .range(1, limits::kCpuCoresMax);
  grammar
      .option("--memory-mb", "MB", &agent.memory_mb,
              "Memory to offer, in MB (default: all memory of the machine)")
      .range(1, limits::kMegabytesMax);
  grammar.option("--label", "NAME=VALUE", &line.labels, "Label of the node; may be repeated");
  grammar.option("--address", "HOST", &agent.address,
                 "Host name or IP address at which other nodes reach this one, for MASTER_ADDR and host "
                 "files of gangs (default: the node's name)");
  grammar.option("--service-ports", "FIRST-LAST", &line.service_ports,
                 "Ports that replicas of services get, below those that the system gives out itself "
                 "(default: 10000-19999)");
  grammar
      .option("--metrics-port", "PORT", &line.metrics_port,
              "Port of this agent's own metrics for Prometheus; 0: any free port, named in the log "
              "(default: none)")
      .range(0, UINT16_MAX);
  grammar.option("--metrics-address", "ADDRESS", &line.metrics_address,
                 "Address of that port; if it is not loopback, requests need the shared token (default: "
                 "127.0.0.1)");
}

void declare_output(Grammar& grammar, CommandLine& line) {
  grammar.heading("Ends and output of jobs");
  grammar
      .option("--grace-ms", "MS", &line.grace_ms,
              "Milliseconds between SIGTERM and SIGKILL, unless the scheduler sets them (default: 10000)")
      .range(0, 86'400'000);
  grammar
      .option("--keep-finished", "N", &line.finished_kept,
              "Number of ended attempts whose output is kept (default: 10000)")
      .range(1, 10'000'000);
  grammar
      .option("--log-limit-mb", "MB", &line.log_limit_mb,
              "MB kept of each job's standard output, and as much of its standard error, the newest; 0: all "
              "(default: 256)")
      .range(0, limits::kMegabytesMax);
  grammar
      .option("--log-quota-mb", "MB", &line.log_quota_mb,
              "MB kept of the output of all jobs; beyond it the output of the oldest ended jobs is removed; "
              "0: no limit (default: 20480)")
      .range(0, limits::kMegabytesMax);
  grammar
      .option("--keep-logs-hours", "HOURS", &line.keep_logs_hours,
              "Hours that output is kept after the end of its job; 0: no limit (default: 168)")
      .range(0, limits::kSettingMax.ns / hours(1).ns);
}

void declare_hooks(Grammar& grammar, CommandLine& line) {
  HookOptions& hooks = line.agent.hooks;
  grammar.heading("Programs that the agent runs");
  grammar
      .option("--prolog", "PROGRAM", &hooks.prolog,
              "Program to run before each attempt; if it fails, the node takes no new jobs and the job runs "
              "elsewhere")
      .completes(Complete::kFile);
  grammar
      .option("--epilog", "PROGRAM", &hooks.epilog,
              "Program to run after each attempt, before its GPUs are released")
      .completes(Complete::kFile);
  grammar
      .option("--health-script", "PROGRAM", &hooks.health_script,
              "Program to run with the checks of the node; while it fails, the node takes no new jobs")
      .completes(Complete::kFile);
  grammar.option("--reboot-command", "COMMAND", &hooks.reboot_command,
                 "Command that gpu-cli node reboot runs on this node, such as 'systemctl reboot' (default: "
                 "none)");
  grammar.option("--gpu-reset-command", "COMMAND", &hooks.gpu_reset_command,
                 "Command that resets the GPU $GPU_SCHEDULER_GPU_UUID, run once nothing uses a GPU whose "
                 "fault requires a reset, such as 'nvidia-smi --gpu-reset -i $GPU_SCHEDULER_GPU_UUID' "
                 "(default: none; the GPU waits for an operator)");
  grammar
      .option("--hook-timeout-s", "SECONDS", &line.hook_timeout_s,
              "Timeout of each of these programs in seconds (default: 60)")
      .range(1, 3'600);
  grammar
      .option("--shim", "PROGRAM", &line.agent.shim_program,
              "Path of gpu-shim (default: next to this program)")
      .completes(Complete::kFile);
}

void declare_gpus(Grammar& grammar, CommandLine& line) {
  AgentOptions& agent = line.agent;
  grammar.heading("GPUs");
  grammar
      .option("--nvml-library", "FILE", &agent.nvml_library,
              "Path of libnvidia-ml.so.1 (default: that of the system)")
      .completes(Complete::kFile)
      .from_environment("GPU_SCHEDULER_NVML_LIBRARY");
  grammar
      .option("--nvidia-smi", "PROGRAM", &agent.nvidia_smi,
              "Path of nvidia-smi, used if NVML finds no GPUs (default: the one in $PATH)")
      .completes(Complete::kFile);
  grammar.option("--gpu-faults", "CODE=RULE", &line.gpu_faults,
                 "Action for a fault of a GPU: an Xid or another code, and ignore, note, drain, reset or "
                 "replace, such as 79=replace; may be repeated");
  grammar
      .option("--share-memory-grace-s", "SECONDS", &line.share_memory_grace_s,
              "Seconds after which a job that uses more GPU memory than its share is ended; 0: it only gets "
              "a warning (default: 0)")
      .range(0, 86'400);
  grammar
      .option("--kernel-log", "FILE", &agent.kernel_log,
              "Kernel log from which Xids are read that the GPU driver does not report itself; empty: none "
              "(default: /dev/kmsg)")
      .completes(Complete::kFile);
  grammar.option("--gpu-daemons", "NAMES", &line.gpu_daemons,
                 "Programs that stay on GPUs without belonging to a job, comma-separated; only executables "
                 "owned by root count (default: MPS, DCGM, display and persistence daemons)");
}

void declare_checks(Grammar& grammar, CommandLine& line) {
  grammar.heading("Checks of the node");
  grammar
      .option("--check-every-s", "SECONDS", &line.check_every_s,
              "Seconds between checks of the node (default: 300)")
      .range(1, 86'400);
  grammar
      .option("--order-patience-s", "SECONDS", &line.order_patience_s,
              "Seconds that gpu-shim may take to start an attempt, or to end one after its grace period, "
              "before the agent ends it itself (default: 60)")
      .range(1, 3'600);
  grammar
      .option("--disk-free-mb", "MB", &line.agent.hooks.disk_free_mb_min,
              "Minimum free space, in MB, on the disk of the data folder; with less the node takes no new "
              "jobs (default: 512, or 5 % of a small disk)")
      .range(0, limits::kMegabytesMax);
  grammar
      .option("--clock-skew-s", "SECONDS", &line.clock_skew_s,
              "Maximum difference, in seconds, from the scheduler's clock; beyond it the node takes no new "
              "jobs (default: 60)")
      .range(1, 86'400);
}

void declare_kubernetes(Grammar& grammar, kubernetes::ApiOptions& options) {
  grammar.heading("Kubernetes");
  grammar.flag("--kubernetes", options.on,
               "Write the GpuNodeStatus of the Kubernetes node --node, and run no jobs; it needs neither a "
               "scheduler nor --data-dir");
  grammar.option("--kubernetes-api", "URL", &options.url,
                 "URL of the API server (default: that of the pod's environment)");
  grammar
      .option(
          "--kubernetes-account", "DIR", &options.account,
          "Folder with the account's token and the authority's ca.crt (default: that of the pod's service "
          "account)")
      .completes(Complete::kFolder);
}

void declare(Grammar& grammar, CommandLine& line) {
  declare_scheduler(grammar, line);
  declare_node(grammar, line);
  declare_output(grammar, line);
  declare_box(grammar, line.agent.box, line.box);
  declare_gpus(grammar, line);
  declare_hooks(grammar, line);
  declare_checks(grammar, line);
  declare_container_options(grammar, line.agent.containers);
  declare_kubernetes(grammar, line.kubernetes);
  grammar.heading("Configuration and log");
  grammar
      .option("--config", "FILE", &line.config,
              "YAML file of these options, with '_' for '-'; the command line takes precedence")
      .completes(Complete::kFile)
      .from_environment("GPU_AGENT_CONFIG");
  grammar.option("--log", "FILE", &line.log.path, "Log file (default: standard error)")
      .alias("--log-file")
      .completes(Complete::kFile);
  grammar.option("--log-level", "LEVEL", &line.log_level,
                 "Minimum level of log lines: debug, info, warning or error (default: info)");
}

/// A one-line error on standard error.
int fail(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-agent: %s\n", message.c_str());
  return status;
}

/// The names in lists with commas between.
std::vector<std::string> comma_separated(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      if (end > begin) names.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

/// All addresses that were given, or the one for who gives none.
std::string addresses_of(const CommandLine& line) {
  std::string all;
  for (const std::string& list : line.schedulers) all += (all.empty() ? "" : ",") + list;
  return all.empty() && !line.agent.tls.on ? usual_agent_socket() : all;
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
  line.agent.finished_kept = static_cast<std::size_t>(line.finished_kept);
  if (!line.gpu_daemons.empty()) line.agent.gpu_daemons = comma_separated(line.gpu_daemons);
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
    line.agent.metrics = MetricsPortOptions{.address = line.metrics_address,
                                            .port = static_cast<uint16_t>(*line.metrics_port)};
  const Result<LinkTls> tls = link_tls_of(line.tls, line.ca_file, line.ca);
  if (!tls) return tls.error();
  line.agent.tls = *tls;
  line.agent.scheduler = addresses_of(line);
  const std::pair<const char*, const std::string*> required[] = {{"--scheduler", &line.agent.scheduler},
                                                                 {"--node", &line.agent.node_name},
                                                                 {"--data-dir", &line.agent.data_folder}};
  for (const auto& [name, value] : required) {
    if (!value->empty() || (line.kubernetes.on && value != &line.agent.node_name)) continue;
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = std::string(name) + " is missing (see gpu-agent --help)"};
  }
  if (!line.kubernetes.on) {
    const auto parsed = parse_scheduler_addresses(line.agent.scheduler, line.agent.tls.on);
    if (!parsed) return parsed.error();
  }
  // A name from before this rule is known to the scheduler, which decides.
  if (line.agent.node_name.size() > limits::kNameBytesMax || !is_utf8(line.agent.node_name)) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = std::string("--node: the name must be ") + kHostNameRule};
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

/// The command line with its file, as it was read at one time.
struct Loaded {
  Grammar grammar;
  CommandLine line;
  std::string without_effect;  ///< Variables of the environment that change nothing.
};

std::string environment_value(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// kInvalidArgument for what cannot be meant. A doctor takes options that do not suffice.
Result<std::unique_ptr<Loaded>> load(const std::vector<std::string>& arguments, bool must_suffice = true) {
  auto loaded = std::make_unique<Loaded>();
  const Grammar& grammar = loaded->grammar;
  declare(loaded->grammar, loaded->line);
  if (const Result<Unit> parsed = grammar.parse(arguments); !parsed) return parsed.error();
  if (const Result<Unit> taken = grammar.take_environment(environment_value); !taken) return taken.error();
  std::vector<AgentSetting> settings;
  if (!loaded->line.config.empty()) {
    Result<std::vector<AgentSetting>> read = read_agent_file(loaded->line.config);
    if (!read) return read.error();
    settings = std::move(*read);
  }
  const Result<AgentEnvironment> environment = read_agent_environment(process_environment());
  if (!environment) return environment.error();
  loaded->without_effect = environment->without_effect;
  settings = with_environment(std::move(settings), environment->settings);
  if (const Result<Unit> given = give_settings(grammar, settings); !given) return given.error();
  const Result<Unit> completed = complete(loaded->line);
  if (!completed && must_suffice) return completed.error();
  return loaded;
}

/// SIGHUP: reads everything again, takes what a running agent can, and names the rest.
class AgentReloader {
 public:
  AgentReloader(std::vector<std::string> arguments, std::unique_ptr<Loaded> running)
      : arguments_(std::move(arguments)), running_(std::move(running)) {}

  std::string reload() {
    Result<std::unique_ptr<Loaded>> fresh = load(arguments_);
    if (!fresh) return refused(fresh.error().message);
    if (const Result<Unit> log = log_reopen((*fresh)->line.log); !log) return refused(log.error().message);
    return take(std::move(*fresh));
  }

 private:
  static std::string refused(const std::string& why) {
    log_event(LogLevel::kError, "agent", "config_not_reloaded", {},
              {{"why", why}, {"kept", "the whole old configuration"}});
    return "the new configuration was rejected and the old one stays in effect: " + why;
  }
  std::string take(std::unique_ptr<Loaded> fresh) {
    const std::vector<OptionChange> changes = option_changes(running_->grammar, fresh->grammar);
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
int run_doctor(std::vector<std::string> arguments, bool json) {
  std::erase(arguments, "--json");
  if (arguments.empty() && access(kConfigDefault, R_OK) == 0)
    arguments.push_back(std::string("--config=") + kConfigDefault);
  Diagnosis diagnosis;
  const Result<std::unique_ptr<Loaded>> loaded = load(arguments, false);
  if (loaded) {
    AgentOptions options = (*loaded)->line.agent;
    if (options.data_folder.empty()) options.data_folder = kDataFolderDefault;
    diagnosis = examine_node(options, (*loaded)->line.config);
  } else {
    diagnosis.add({.check = "config",
                   .verdict = Verdict::kFail,
                   .detail = loaded.error().message,
                   .fix = "gpu-agent --help    # its options are the keys of the file"});
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

/// `gpu-agent --kubernetes`.
int serve_kubernetes(const CommandLine& line, const ServiceNotifier& manager) {
  const int stop = signal_descriptor({SIGTERM, SIGINT});
  manager.ready("writes the GpuNodeStatus of " + line.agent.node_name);
  const AgentOptions& agent = line.agent;
  const Result<Unit> served = kubernetes::serve_node_status(
      {.node = agent.node_name,
       .sim_gpus = agent.sim_gpus,
       .sim_links = agent.sim_links,
       .sim_control = agent.data_folder.empty() ? "" : agent.data_folder + "/sim-gpus.json",
       .nvml_library = agent.nvml_library,
       .nvidia_smi = agent.nvidia_smi,
       .gpu_daemons = agent.gpu_daemons,
       .api = line.kubernetes},
      stop);
  manager.stopping();
  log_shut_down();
  close(stop);
  return served ? 0 : fail(served.error().message, 1);
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

int run_node(const std::vector<std::string>& arguments) {
  Result<std::unique_ptr<Loaded>> loaded = load(arguments);
  if (!loaded) return fail(loaded.error().message, 2);
  const ServiceNotifier manager = ServiceNotifier::take_from_environment();
  signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) close(signal_descriptor({number}));
  const CommandLine line = (*loaded)->line;
  if (const Result<Unit> set_up = log_set_up(line.log); !set_up) return fail(set_up.error().message, 1);
  if (!(*loaded)->without_effect.empty()) {
    log_event(LogLevel::kWarning, "agent", "config_without_effect", {},
              {{"keys", (*loaded)->without_effect},
               {"message",
                "these environment variables have no effect on the agent; they may be kept or removed"}});
  }
  if (line.kubernetes.on) return serve_kubernetes(line, manager);
  AgentReloader reloader(arguments, std::move(*loaded));
  const int status = serve(line.agent, reloader, manager);
  log_shut_down();
  return status;
}

ProgramAction define_node(Grammar& grammar) {
  const auto line = std::make_shared<CommandLine>();
  declare(grammar, *line);
  grammar.details(
      "Jobs outlive the agent: stop, upgrade and start it at any time. It needs --node and --data-dir, on "
      "the "
      "command line or in the file that --config names.");
  grammar.details(
      "The variables GPU_SCHEDULER_AGENT_NODE_ID, GPU_SCHEDULER_AGENT_CONTAINER_RUNTIME and "
      "GPU_SCHEDULER_AGENT_HEALTH_CHECK_INTERVAL_MS, with or without GPU_SCHEDULER_, hold for --node, "
      "--container-runtime and --check-every-s: against the file, but not against the command line.");
  return [line](const std::vector<std::string>& words) { return run_node(words); };
}

ProgramAction define_doctor(Grammar& grammar) {
  const auto line = std::make_shared<CommandLine>();
  const auto json = std::make_shared<bool>(false);
  declare(grammar, *line);
  grammar.hide_options();
  grammar.heading("Options");
  grammar.flag("--json", *json, "Print JSON");
  grammar.details(
      "Checks everything that an agent with these options needs from this machine and from its scheduler, "
      "and "
      "shows how to correct what fails. It takes all options of gpu-agent; without any, those of "
      "/etc/gpu-scheduler/agent.yaml hold. Exit status: 0 all checks pass, 1 warnings, 2 failures.");
  return [line, json](const std::vector<std::string>& words) { return run_doctor(words, *json); };
}

ProgramAction define_checkpointed(Grammar& grammar) {
  grammar.details("To be run within a job that is not a container.");
  return [](const std::vector<std::string>&) { return run_checkpointed(); };
}

}  // namespace

Program agent_program(std::function<void(const std::string& secret)> hide) {
  return {.name = "gpu-agent",
          .version = kVersion,
          .summary = "run jobs on this machine for a gpu-scheduler",
          .commands = {{.path = "",
                        .summary = "Runs jobs on this machine for a gpu-scheduler",
                        .define = define_node},
                       join_command(kVersion, std::move(hide)),
                       {.path = "doctor",
                        .summary = "Check this machine, and show how to correct what fails",
                        .define = define_doctor},
                       {.path = "checkpointed",
                        .summary = "Report within a job that its work is saved up to now",
                        .define = define_checkpointed}},
          .exit_codes =
              "Exit status: 0 after a clean end, 1 if the agent cannot start, 2 if its command line or "
              "configuration is wrong."};
}

int run_agent(int argc, char** argv) {
  // A secret among the words is overwritten, so that no list of processes goes on showing it.
  const auto hide = [argc, argv](const std::string& secret) {
    for (int i = 1; i < argc; ++i) {
      if (secret == argv[i]) std::memset(argv[i], 'x', std::strlen(argv[i]));
    }
  };
  return run_program(agent_program(hide), program_words(argc, argv), process_program_io());
}

}  // namespace gpusched
