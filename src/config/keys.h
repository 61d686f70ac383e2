#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace gpusched {

/// Location of a key's value in a Config; the alternative determines the key's type.
using ConfigSlot = std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*>;

/// Effect of setting a key.
enum class ConfigEffect {
  kUsed,
  kNone,  ///< Known to existing configuration files; accepted with any value, and changes nothing.
};

/// One setting. The default is the value in a fresh Config.
struct ConfigKey {
  std::string_view section;  ///< Empty: the key stands beside the sections.
  std::string_view name;
  ConfigSlot (*slot)(Config&);
  std::string_view meaning;  ///< One or two sentences for the reference page.
  double min = 0;            ///< Numbers only; both ends are allowed.
  double max = 0;
  std::optional<double> automatic = {};  ///< Numbers with a point only: what "auto" stands for, out of range.
  std::string_view one_of = {};          ///< Strings only: the allowed ones, separated by blanks.
  bool secret = false;                   ///< Never printed.
  ConfigEffect effect = ConfigEffect::kUsed;
  bool live = false;  ///< A running scheduler takes a new value on SIGHUP; any other needs a restart.

  std::string full_name() const;    ///< "api.http_port"
  std::string environment() const;  ///< "GPU_SCHEDULER_API_HTTP_PORT"
  std::string expectation() const;  ///< "an integer from 0 to 65535"
};

/// All settings, by section.
std::span<const ConfigKey> config_keys();

/// Settings by which the scheduler decides, and those beside the sections (scheduler_keys.cc).
std::span<const ConfigKey> scheduler_config_keys();
/// All other sections: admission, the service and its agents (service_keys.cc).
std::span<const ConfigKey> service_config_keys();
/// The tasks of agents (task_keys.cc).
std::span<const ConfigKey> task_config_keys();

/// The cluster of several schedulers (replica_keys.cc).
std::span<const ConfigKey> replica_config_keys();

/// Prefix of every environment variable that sets a key.
inline constexpr std::string_view kConfigEnvironmentPrefix = "GPU_SCHEDULER_";

/// Text shown in place of a secret.
inline constexpr std::string_view kConfigMask = "\"********\"";

const ConfigKey* find_config_key(std::string_view section, std::string_view name);
bool is_config_section(std::string_view section);

/// The known key that `section.name` most likely means, or nullptr when none is near.
const ConfigKey* nearest_config_key(std::string_view section, std::string_view name);

/// One key whose value differs between two configurations.
struct ConfigChange {
  const ConfigKey* key = nullptr;
  std::string before;  ///< Value as from `config_value_text`; secrets are masked.
  std::string after;
};
/// Returns the differences, in the order of the keys.
std::vector<ConfigChange> config_changes(const Config& before, const Config& after);

/// Letters to insert, delete, replace, or swap with their neighbour to get from one to the other.
size_t edit_distance(std::string_view from, std::string_view to);

/// The value of `key` as one YAML scalar or flow sequence, not masked.
std::string config_value_text(const ConfigKey& key, const Config& config);

}  // namespace gpusched
