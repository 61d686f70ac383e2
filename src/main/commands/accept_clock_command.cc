#include "main/commands/accept_clock_command.h"

#include <cstdio>
#include <memory>
#include <string>

#include "config/config.h"
#include "host/core/data_folder.h"
#include "host/core/system_clock.h"
#include "log/line.h"
#include "main/serve.h"

namespace gpusched {
namespace {

int complain(const Error& error, int status) {
  std::fprintf(stderr, "gpu-scheduler accept-clock: %s\n", error.message.c_str());
  return status;
}

std::string text_of(Time time) {
  std::string text;
  append_rfc3339(text, time);
  return text;
}

int accept(const std::string& data_dir, const std::string& config_path) {
  const Result<LoadedConfig> config =
      load_config({.path = config_path, .environment = process_environment()});
  if (!config.ok()) return complain(config.error(), 2);
  const SystemClock clock;
  const Result<AcceptedClock> accepted = accept_clock(host_options(config->values, data_dir), clock);
  if (!accepted.ok()) return complain(accepted.error(), 1);
  std::printf("The newest time in the journal was %s; it continues at %s. Start the scheduler.\n",
              text_of(accepted->newest).c_str(), text_of(accepted->wall).c_str());
  return 0;
}

ProgramAction define_accept_clock(Grammar& grammar) {
  struct Options {
    std::string data_dir;
    std::string config;
  };
  const auto options = std::make_shared<Options>();
  grammar.option("--data-dir", "DIR", &options->data_dir, "Data folder of the scheduler")
      .must()
      .completes(Complete::kFolder);
  grammar.option("--config", "FILE", &options->config, "YAML configuration file of the scheduler")
      .completes(Complete::kFile);
  grammar.details(
      "For a clock that is far from the newest time in the journal: after a long downtime of the scheduler, "
      "or "
      "after a wrong clock was corrected. Stop the scheduler first.");
  return [options](const std::vector<std::string>&) { return accept(options->data_dir, options->config); };
}

}  // namespace

ProgramCommand accept_clock_command() {
  return {.path = "accept-clock",
          .summary = "Accept this machine's clock although it has jumped",
          .define = define_accept_clock};
}

}  // namespace gpusched
