#include "main/scheduler_main.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "codec/group.h"
#include "config/config.h"
#include "log/log.h"
#include "main/commands/accept_clock_command.h"
#include "main/commands/admin_command.h"
#include "main/commands/dev_command.h"
#include "main/commands/doctor_command.h"
#include "main/commands/journal_command.h"
#include "main/serve.h"
#include "main/supervise.h"

namespace gpusched {
namespace {

std::string decode_record(const JournalRecord& record) {
  const Result<CommandGroup> group = decode_group(record.payload);
  return group.ok() ? dump_group(*group) : "\"" + group.error().message + "\"";
}

int complain(const Error& error, int status) {
  std::fprintf(stderr, "gpu-scheduler: %s\n", error.message.c_str());
  return status;
}

int serve_until_signal(const ConfigInputs& inputs, const LoadedConfig& loaded, const std::string& data_dir) {
  const Config& config = loaded.values;
  const ServiceNotifier manager = ServiceNotifier::take_from_environment();
  const Result<LogLevel> level = parse_log_level(config.log.level);
  if (!level.ok()) return complain(level.error(), 2);
  block_signals();  // Before the first thread, the log's: any that has them open would end the process.
  const Result<Unit> logging = log_set_up({.path = config.log.path, .level = *level});
  if (!logging.ok()) return complain(logging.error(), 1);
  warn_of_keys_without_effect(loaded);
  manager.status("recovering " + data_dir);
  const Result<std::unique_ptr<Service>> service = Service::start(config, data_dir);
  if (!service.ok()) {
    log_shut_down();
    return complain(service.error(), 1);
  }
  Reloader reloader(inputs, config);
  const int signal = supervise(**service, manager, [&] { return reloader.reload(**service); });
  const EndsOnSignal second_ends_at_once;
  log_event(LogLevel::kInfo, "scheduler", "scheduler_stopping", {}, {{"signal", signal}});
  (*service)->stop();
  log_event(LogLevel::kInfo, "scheduler", "scheduler_stopped", {}, {});
  log_shut_down();
  return 0;
}

}  // namespace

int run_scheduler(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "journal") {
    return run_journal_command(argc - 1, argv + 1, std::cout, std::cerr, decode_record);
  }
  if (argc > 1 && std::string_view(argv[1]) == "dev") return run_dev_command(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "admin") return run_admin_command(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "node-token")
    return run_node_token_command(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "order-key") return run_order_key_command(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "accept-clock")
    return run_accept_clock_command(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "doctor") return run_doctor_command(argc - 1, argv + 1);

  std::string config_path;
  std::string data_dir;
  bool print = false;
  CLI::App app(
      "Schedules jobs on GPUs; no accepted job is lost in a crash.\n"
      "\n"
      "Commands:\n"
      "  gpu-scheduler dev                             run a scheduler and an agent on this machine\n"
      "  gpu-scheduler journal verify|dump|stat DIR    inspect the journal of a data folder\n"
      "  gpu-scheduler journal audit DIR               print who changed what, as far as the journal knows\n"
      "  gpu-scheduler doctor                          check this machine, and show how to correct it\n"
      "  gpu-scheduler accept-clock --data-dir DIR     accept this machine's clock although it has jumped\n"
      "  gpu-scheduler admin apply -f FILE             apply a file of tenants, quotas and node labels\n"
      "  gpu-scheduler admin get                       print the current state as such a file\n"
      "  gpu-scheduler node-token create NODE          make a token with which a machine becomes that node, "
      "once\n"
      "  gpu-scheduler order-key rotate|finish         change the key that orders to nodes are signed with",
      "gpu-scheduler");
  app.add_option("--config", config_path, "YAML configuration file (docs/reference/configuration.md)");
  app.add_option("--data-dir", data_dir, "folder of the journal, snapshots, token and ports.json");
  app.add_flag("--print-config", print, "print the effective configuration and the source of each value");
  app.set_version_flag("--version", std::string("gpu-scheduler ") + GPUSCHED_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const ConfigInputs inputs{.path = config_path, .environment = process_environment()};
  const Result<LoadedConfig> config = load_config(inputs);
  if (!config.ok()) return complain(config.error(), 2);
  if (print) {
    std::fputs(print_config(*config).c_str(), stdout);
    return 0;
  }
  if (data_dir.empty()) {
    return complain(
        {.code = ErrorCode::kInvalidArgument,
         .message = "--data-dir DIR is missing; to try gpu-scheduler out, run `gpu-scheduler dev`"},
        2);
  }
  return serve_until_signal(inputs, *config, data_dir);
}

}  // namespace gpusched
