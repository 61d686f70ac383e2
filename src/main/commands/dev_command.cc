#include "main/commands/dev_command.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/http_client.h"
#include "client/local_token.h"
#include "config/config.h"
#include "log/log.h"
#include "main/commands/dev_defaults.h"
#include "main/commands/local_agent.h"
#include "main/serve.h"
#include "main/supervise.h"
#include "ops/machine.h"
#include "ops/port_holder.h"

namespace gpusched {
namespace {

struct DevOptions {
  std::string data_dir;
  std::string config;
  std::string node = "dev";
  std::string sim_gpus;
  int64_t cpus = 0;
  std::string user;  ///< User that jobs run as where we are root; empty: as we are.
};

/// An unprivileged user of this machine's for jobs of a scheduler that root tries out: whoever became root by
/// sudo, or nobody.
std::string user_for_jobs() {
  if (geteuid() != 0) return {};
  const char* const caller = std::getenv("SUDO_USER");
  const passwd* const entry = caller == nullptr ? nullptr : getpwnam(caller);
  return entry != nullptr && entry->pw_uid != 0 ? entry->pw_name : "nobody";
}

std::string default_data_dir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  // Jobs of another user come to their folders through all those above, which root's home does not let them.
  if (geteuid() == 0) return "/var/lib/gpu-scheduler-dev";
  if (state != nullptr && *state == '/') return std::string(state) + "/gpu-scheduler/dev";
  return std::string(home != nullptr ? home : "/tmp") + "/.local/state/gpu-scheduler/dev";
}

/// Whether gpu-cli comes here when it is told nothing.
bool is_usual(const BoundPorts& ports) {
  const char* const folder = std::getenv("XDG_RUNTIME_DIR");
  const std::string found = find_local_socket(folder == nullptr ? "" : folder);
  if (!found.empty()) return found == std::string(kUnixScheme) + ports.unix_socket;
  return ports.http == Config::Api{}.http_port && !ports.https;
}

/// The ports on which clients of other systems find their doors; empty: there are none.
std::string doors_line(const BoundPorts& ports) {
  std::string line;
  const auto add = [&](const char* what, uint16_t port) {
    if (port == 0) return;
    line += (line.empty() ? "  " : ", ") + (what + (" " + std::to_string(port)));
  };
  add("tasks of agents: gRPC", ports.tasks_grpc);
  add("their state: HTTP", ports.tasks_http);
  add("allocations: HTTP", ports.allocation);
  return line.empty() ? line : line + "\n";
}

void print_banner(const DevOptions& options, const BoundPorts& ports) {
  const std::string url = (ports.https ? "https" : "http") + ("://127.0.0.1:" + std::to_string(ports.http));
  const std::string prefix = is_usual(ports) ? "" : "export GPU_SCHEDULER_URL=" + url + "\n    ";
  std::printf(
      "gpu-scheduler %s is up: REST %s, gRPC 127.0.0.1:%u%s\n"
      "  node %s with %s; data and logs in %s\n"
      "%s%s"
      "  try in another terminal:\n"
      "    %sgpu-cli submit --gpus 1 --wait --logs -- sh -c 'echo got GPU $CUDA_VISIBLE_DEVICES'\n"
      "    gpu-cli list\n"
      "  Ctrl-C ends it.\n",
      GPUSCHED_VERSION, url.c_str(), ports.grpc,
      ports.metrics == 0 ? "" : (", metrics " + std::to_string(ports.metrics)).c_str(), options.node.c_str(),
      options.sim_gpus.empty() ? "the GPUs of this machine" : ("simulated GPUs " + options.sim_gpus).c_str(),
      options.data_dir.c_str(), doors_line(ports).c_str(),
      options.user.empty() ? "" : ("  jobs run as user " + options.user + "\n").c_str(), prefix.c_str());
  const std::optional<std::string> closed =
      geteuid() == 0 ? ops::closed_folder_above(options.data_dir, {}) : std::nullopt;
  if (closed) {
    std::printf(
        "  Jobs of other users are refused, because those users cannot enter %s. Run chmod o+x %s, or start "
        "with --data-dir DIR.\n",
        closed->c_str(), ops::shell_quoted(*closed).c_str());
  }
  std::fflush(stdout);
}

/// Starts it; a free port, or none where a door can do without, replaces a default port that is taken.
Result<std::unique_ptr<Service>> start_service(const DevOptions& options, LoadedConfig config) {
  constexpr int kPorts = 6;
  for (int tries = 0;; ++tries) {
    Result<std::unique_ptr<Service>> service = Service::start(config.values, options.data_dir + "/scheduler");
    if (service.ok() || tries == kPorts) return service;
    const std::optional<OtherPort> other = replace_port(service.error(), config);
    if (!other) return service;
    const std::string holder = port_holder(static_cast<uint16_t>(other->taken));
    std::printf("port %ld (%s) is in use by %s; %s\n", static_cast<long>(other->taken),
                service.error().field.c_str(), holder.empty() ? "another process" : holder.c_str(),
                other->is_left_out ? "its clients are not served there" : "using a free port instead");
  }
}

int serve(const DevOptions& options, const LoadedConfig& config) {
  Result<std::unique_ptr<Service>> service = start_service(options, config);
  if (!service.ok()) {
    std::fprintf(stderr, "gpu-scheduler: %s\n", service.error().message.c_str());
    return 1;
  }
  const Result<pid_t> agent = start_agent({.node = options.node,
                                           .folder = options.data_dir + "/agent",
                                           .sim_gpus = options.sim_gpus,
                                           .default_user = options.user,
                                           .cpus = cores_to_offer(options.cpus, options.sim_gpus)},
                                          (*service)->ports());
  if (!agent.ok()) {
    const EndsOnSignal meanwhile;
    std::fprintf(stderr, "gpu-scheduler: %s\n", agent.error().message.c_str());
    service->reset();
    return 1;
  }
  print_banner(options, (*service)->ports());
  wait_for_signal();  // A closed terminal ends it too.
  const EndsOnSignal second_ends_at_once;
  const int64_t active = (*service)->active_jobs();
  end_agent(*agent);
  (*service)->stop();
  if (active > 0) {
    std::printf("%ld jobs continue to run; start `gpu-scheduler dev` again to see them end\n",
                static_cast<long>(active));
  }
  return 0;
}

int run_dev(const DevOptions& options) {
  Result<LoadedConfig> config =
      load_config({.path = options.config, .environment = process_environment(), .overrides = {}});
  if (!config.ok()) {
    std::fprintf(stderr, "gpu-scheduler: %s\n", config.error().message.c_str());
    return 2;
  }
  open_all_doors(*config);
  std::error_code failed;
  std::filesystem::create_directories(options.data_dir, failed);
  if (failed) {
    std::fprintf(stderr, "gpu-scheduler: cannot create %s: %s\n", options.data_dir.c_str(),
                 failed.message().c_str());
    return 1;
  }
  const Result<LogLevel> level = parse_log_level(config->values.log.level);
  const std::string path =
      config->values.log.path.empty() ? options.data_dir + "/scheduler.log" : config->values.log.path;
  block_signals();  // Before the first thread, the log's: any that has them open would end the process.
  const Result<Unit> logging = log_set_up({.path = path, .level = level.ok() ? *level : LogLevel::kInfo});
  if (!logging.ok()) {
    std::fprintf(stderr, "gpu-scheduler: %s\n", logging.error().message.c_str());
    return 1;
  }
  return serve(options, *config);
}

ProgramAction define_dev(Grammar& grammar) {
  const auto options = std::make_shared<DevOptions>();
  options->data_dir = default_data_dir();
  grammar
      .option("--data-dir", "DIR", &options->data_dir,
              "Folder for all data (default: ~/.local/state/gpu-scheduler/dev, of root "
              "/var/lib/gpu-scheduler-dev)")
      .completes(Complete::kFolder);
  grammar.option("--config", "FILE", &options->config, "YAML configuration file").completes(Complete::kFile);
  grammar.option("--node", "NAME", &options->node, "Name of the node (default: dev)");
  const OptionSpec& sim_gpus =
      grammar.option("--sim-gpus", "GPUS", &options->sim_gpus,
                     "Simulated GPUs; empty: this machine's own (default: these, or 4xA100-SXM4-80GB where "
                     "there is no GPU driver)");
  grammar.option("--default-user", "USER", &options->user,
                 "User that jobs run as, if root calls this (default: who called sudo, or nobody)");
  grammar
      .option("--cpus", "N", &options->cpus,
              "Number of CPU cores to offer (default: all, and at least one a simulated GPU)")
      .range(0, INT32_MAX);
  return [options, &grammar, &sim_gpus](const std::vector<std::string>&) {
    if (!options->user.empty() && geteuid() != 0) {
      std::fputs("gpu-scheduler dev: --default-user: only root can run jobs as another user\n", stderr);
      return 2;
    }
    if (options->user.empty()) options->user = user_for_jobs();
    if (!grammar.was_given(sim_gpus) && !has_gpu_driver()) options->sim_gpus = "4xA100-SXM4-80GB";
    return run_dev(*options);
  };
}

}  // namespace

ProgramCommand dev_command() {
  return {.path = "dev",
          .summary = "Run a scheduler and an agent on this machine until Ctrl-C",
          .define = define_dev};
}

}  // namespace gpusched
