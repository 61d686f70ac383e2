#include "main/commands/accept_clock_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
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

}  // namespace

int run_accept_clock_command(int argc, char** argv) {
  std::string config_path;
  std::string data_dir;
  CLI::App app(
      "Accepts this machine's clock although it is far from the newest time in the journal: after a long "
      "downtime of the scheduler, or after a wrong clock was corrected. Stop the scheduler first.",
      "gpu-scheduler accept-clock");
  app.add_option("--data-dir", data_dir, "data folder of the scheduler")->required();
  app.add_option("--config", config_path, "YAML configuration file of the scheduler");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
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

}  // namespace gpusched
