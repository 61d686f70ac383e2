#include "config/config.h"
#include "config/keys.h"

namespace gpusched {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Made from the tables in src/config/*_keys.cc: `GPUSCHED_WRITE_REFERENCE=1 build/tests/config_test`. -->

`gpu-scheduler --config FILE` reads a YAML file of sections and keys:

```yaml
api:
  http_port: 8080
scheduler:
  max_queue_size: 50000
```

Each key has an environment variable, `GPU_SCHEDULER_<SECTION>_<KEY>`, which wins over the file; a command-line
flag wins over both. An environment variable writes a list with commas. A key that is not in the tables below is
refused with the nearest known one, and so is a value of the wrong type or out of range. `gpu-scheduler --print-config`
shows the effective configuration and the source of each value; passwords are omitted.

On SIGHUP (`systemctl reload gpu-scheduler`) file and environment are read again. The log names each change, old and
new, and which keys need a restart; those marked *live* take effect at once. If the file has any error, the whole
old configuration stays in effect, and the log says what is wrong. SIGHUP also reopens the log file and the audit's.

Keys marked "no effect" are accepted with any value, so that existing configuration files can be used as they are. A
warning at start, `--print-config` and `gpu-scheduler doctor` name those that are given.
)";

std::string_view section_title(std::string_view section) {
  if (section == "telemetry") return "Traces and profiles";
  if (section == "scheduler") return "Scheduling";
  if (section == "admission") return "Admission: who may submit how much";
  if (section == "tasks") return "Tasks of agents";
  if (section == "journal") return "Journal on disk";
  if (section == "api") return "Where clients and agents connect";
  if (section == "metrics") return "Prometheus metrics";
  if (section == "doors") return "Doors with a port of their own";
  if (section == "log") return "The log";
  if (section == "history") return "The history: finished jobs and use for years";
  if (section == "machines") return "Machines of providers";
  if (section == "replica") return "Several schedulers that are one";
  if (section == "audit") return "The audit: who did what";
  if (section == "agent") return "Agents";
  if (section == "database") return "PostgreSQL";
  if (section == "redis") return "Redis";
  if (section == "kubernetes") return "Kubernetes";
  UNREACHABLE();
}

std::string effect_note(ConfigEffect effect) {
  switch (effect) {
    case ConfigEffect::kUsed:
      return "";
    case ConfigEffect::kNone:
      return " *No effect.*";
  }
  UNREACHABLE();
}

}  // namespace

std::string print_config(const LoadedConfig& config) {
  std::string out = "# Effective configuration, with the source of each value.\n";
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    if (key.section != section) {
      section = key.section;
      out += std::string(section) + ":\n";
    }
    const std::string indent = section.empty() ? "" : "  ";
    std::string value = config_value_text(key, config.values);
    if (key.secret && value != "\"\"") value = kConfigMask;
    const auto origin = config.origins.find(key.full_name());
    std::string from = origin == config.origins.end() ? "default" : origin->second;
    if (key.effect == ConfigEffect::kNone && origin != config.origins.end()) from += "; no effect";
    out += indent + std::string(key.name) + ": " + value + "  # " + from + "\n";
  }
  return out;
}

std::string keys_without_effect(const LoadedConfig& config) {
  std::string names;
  for (const ConfigKey& key : config_keys()) {
    if (key.effect != ConfigEffect::kNone || !config.origins.contains(key.full_name())) continue;
    names += (names.empty() ? "" : ", ") + key.full_name();
  }
  return names;
}

std::string configuration_reference() {
  const Config defaults;
  std::string out(kIntroduction);
  std::optional<std::string_view> section;
  for (const ConfigKey& key : config_keys()) {
    if (key.section != section) {
      section = key.section;
      out += section->empty()
                 ? "\n## Beside the sections\n\n"
                 : "\n## `" + std::string(*section) + "`: " + std::string(section_title(*section)) + "\n\n";
      out += "| key | default | expects | meaning |\n|---|---|---|---|\n";
    }
    out += "| `" + std::string(key.name) + "` | `" + config_value_text(key, defaults) + "` | " +
           key.expectation() + " | " + std::string(key.meaning) + effect_note(key.effect) +
           (key.live ? " *Live.*" : "") + " |\n";
  }
  return out;
}

}  // namespace gpusched
