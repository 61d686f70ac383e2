#include "main/commands/dev_defaults.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace gpusched {
namespace {

/// Says what it got, and where: enough to see a payload come in and a result go out.
constexpr const char* kExampleWorker =
    "bytes=$(wc -c) && echo \"$TASK_TYPE task $TASK_ID: $bytes bytes on GPU $CUDA_VISIBLE_DEVICES\"";

int64_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
}

bool is_set(const LoadedConfig& config, std::string_view key) { return config.origins.contains(key); }

bool is_used(const Config& config, int64_t port) {
  const std::array ports = {config.api.http_port,   config.api.grpc_port,         config.metrics.port,
                            config.tasks.grpc_port, config.doors.allocation_port, config.tasks.http_port};
  return std::ranges::find(ports, port) != ports.end();
}

void open_port(LoadedConfig& config, std::string_view key, int64_t& slot, int64_t port) {
  if (!is_set(config, key) && !is_used(config.values, port)) slot = port;
}

}  // namespace

void open_all_doors(LoadedConfig& config) {
  const CompatiblePorts ports;
  open_port(config, "tasks.grpc_port", config.values.tasks.grpc_port, ports.tasks_grpc);
  open_port(config, "tasks.http_port", config.values.tasks.http_port, ports.tasks_http);
  open_port(config, "doors.allocation_port", config.values.doors.allocation_port, ports.allocation);
  Config::Tasks& tasks = config.values.tasks;
  const std::array<std::string*, std::size(kTaskTypes)> commands = {
      &tasks.embedding_command, &tasks.llm_command, &tasks.diffusion_command, &tasks.other_command};
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::string key = "tasks." + std::string(kTaskTypes[i]);
    if (!is_set(config, key + "_command") && !is_set(config, key + "_endpoint") &&
        !is_set(config, key + "_worker"))
      *commands[i] = kExampleWorker;
  }
  if (!is_set(config, "api.anonymous_may"))
    config.values.api.anonymous_may.assign(std::begin(kAnonymousMay), std::end(kAnonymousMay));
}

std::optional<OtherPort> replace_port(const Error& error, LoadedConfig& config) {
  if (error.code != ErrorCode::kLocked || is_set(config, error.field)) return std::nullopt;
  Config& values = config.values;
  struct Row {
    std::string_view key;
    int64_t& port;
    bool is_left_out;
  };
  const Row rows[] = {{"api.http_port", values.api.http_port, false},
                      {"api.grpc_port", values.api.grpc_port, false},
                      {"metrics.port", values.metrics.port, false},
                      {"tasks.grpc_port", values.tasks.grpc_port, true},
                      {"tasks.http_port", values.tasks.http_port, true},
                      {"doors.allocation_port", values.doors.allocation_port, true}};
  for (const Row& row : rows) {
    if (row.key != error.field || row.port == 0) continue;
    const OtherPort other{.taken = row.port, .is_left_out = row.is_left_out};
    row.port = 0;
    return other;
  }
  return std::nullopt;
}

int64_t cores_to_offer(int64_t asked, std::string_view sim_gpus) {
  const int64_t gpus = count_simulated_gpus(sim_gpus);
  return asked == 0 && gpus > usable_cores() ? gpus : asked;
}

int64_t count_simulated_gpus(std::string_view shape) {
  int64_t gpus = 0;
  while (!shape.empty()) {
    const std::string_view part = shape.substr(0, shape.find(','));
    shape.remove_prefix(std::min(shape.size(), part.size() + 1));
    if (part.empty()) continue;
    int64_t count = 0;
    const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), count);
    const bool is_counted = failure == std::errc{} && end != part.data() + part.size() && *end == 'x';
    gpus += is_counted ? count : 1;
  }
  return gpus;
}

}  // namespace gpusched
