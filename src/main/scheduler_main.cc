#include "main/scheduler_main.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "codec/group.h"
#include "config/config.h"
#include "grammar/program.h"
#include "log/log.h"
#include "main/commands/accept_clock_command.h"
#include "main/commands/admin_command.h"
#include "main/commands/dev_command.h"
#include "main/commands/doctor_command.h"
#include "main/commands/journal_command.h"
#include "main/commands/members_command.h"
#include "main/replicas/replica_process.h"
#include "main/replicas/start_again.h"
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
  const Result<std::optional<int>> replica = serve_as_replica(inputs, config, data_dir, manager);
  if (!replica.ok() || *replica) {
    log_shut_down();
    return replica.ok() ? **replica : complain(replica.error(), 1);
  }
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

int serve_or_print(const std::string& config_path, const std::string& data_dir, bool print) {
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

ProgramAction define_serve(Grammar& grammar) {
  struct Options {
    std::string config;
    std::string data_dir;
    bool print = false;
  };
  const auto options = std::make_shared<Options>();
  grammar
      .option("--config", "FILE", &options->config,
              "YAML configuration file (docs/reference/configuration.md)")
      .completes(Complete::kFile);
  grammar
      .option("--data-dir", "DIR", &options->data_dir,
              "Folder of the journal, snapshots, token and ports.json")
      .completes(Complete::kFolder);
  grammar.flag("--print-config", options->print,
               "Print the effective configuration and the source of each value");
  grammar.details(
      "No accepted job is lost in a crash. Each key of the configuration may also be set by an environment "
      "variable, GPU_SCHEDULER_<SECTION>_<KEY>.");
  grammar.example("gpu-scheduler demo", "see five jobs run, then nothing is left");
  grammar.example("gpu-scheduler dev", "try it out on this machine");
  return [options](const std::vector<std::string>&) {
    return serve_or_print(options->config, options->data_dir, options->print);
  };
}

std::vector<ProgramCommand> scheduler_commands() {
  std::vector<ProgramCommand> all = {
      {.path = "", .summary = "Schedules jobs on GPUs", .define = define_serve},
      demo_command(),
      dev_command()};
  const auto add = [&](std::vector<ProgramCommand> more) {
    for (ProgramCommand& command : more) all.push_back(std::move(command));
  };
  add(journal_commands(std::cout, std::cerr, decode_record));
  add(backup_commands());
  add({doctor_command(), accept_clock_command()});
  add(admin_commands());
  add({history_copy_command(), history_statement_command(), node_token_command()});
  add(order_key_commands());
  add(members_commands());
  return all;
}

}  // namespace

Program scheduler_program() {
  return {.name = "gpu-scheduler",
          .version = GPUSCHED_VERSION,
          .summary = "schedule jobs on GPUs",
          .commands = scheduler_commands(),
          .exit_codes =
              "Exit status: 0 after a clean end, 1 if the scheduler cannot start, 2 if its command line "
              "or configuration is wrong."};
}

int run_scheduler(int argc, char** argv) {
  remember_start(argv);
  return run_program(scheduler_program(), program_words(argc, argv), process_program_io());
}

}  // namespace gpusched
