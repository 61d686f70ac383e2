#include "node/agent/agent_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "base/errors.h"
#include "config/keys.h"
#include "config/yaml_problem.h"
#include "grammar/grammar.h"

namespace gpusched {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;

std::string dashed(std::string text) {
  std::ranges::replace(text, '_', '-');
  return text;
}

std::string underscored(std::string text) {
  std::ranges::replace(text, '-', '_');
  return text;
}

void add_problem(std::string& problems, const std::string& sentence) {
  problems += (problems.empty() ? "" : "\n") + sentence;
}

/// Options that a file may not give.
bool is_for_the_command_line(const std::string& name) {
  return name == "help" || name == "version" || name == "config";
}

std::string without_dashes(const OptionSpec& option) { return option.name.substr(2); }

std::string nearest_option(const Grammar& grammar, const std::string& name) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const OptionSpec& option : grammar.options()) {
    std::vector<std::string> names = option.aliases;
    names.push_back(option.name);
    for (const std::string& known : names) {
      const std::size_t distance = edit_distance("--" + name, known);
      if (distance >= best_distance || is_for_the_command_line(known.substr(2))) continue;
      best_distance = distance;
      best = known.substr(2);
    }
  }
  return best;
}

std::string joined(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? "" : ", ") + value;
  return out;
}

Result<std::string> file_text(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int reason = errno;
    return Error{.code = reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 .message = "cannot read the configuration file " + path + ": " + std::strerror(reason)};
  }
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.size() > kFileBytesMax) {
    return invalid_argument("the configuration file " + path +
                            " is larger than 1 MiB; check that it is the right file");
  }
  return text;
}

/// The values of one key; false when they are no scalars.
bool take_values(const std::string& name, const YAML::Node& value, std::vector<std::string>& out) {
  if (value.IsScalar()) {
    out.push_back(value.Scalar());
    return true;
  }
  if (value.IsNull()) return true;
  if (value.IsMap() && (name == "gpu-faults" || name == "label")) {  // As a list of NAME=VALUE.
    for (const auto& item : value) {
      if (!item.first.IsScalar() || !item.second.IsScalar()) return false;
      out.push_back(item.first.Scalar() + "=" + item.second.Scalar());
    }
    return true;
  }
  if (!value.IsSequence()) return false;
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) return false;
    out.push_back(item.Scalar());
  }
  return true;
}

/// Milliseconds as seconds, rounded up; nothing when `text` is no time between checks.
std::optional<std::string> whole_seconds(std::string_view text) {
  constexpr int64_t kMillisecondsMax = 86'400'000;
  int64_t given = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), given);
  if (error != std::errc{} || stop != text.data() + text.size() || given < 1 || given > kMillisecondsMax)
    return std::nullopt;
  return std::to_string((given + 999) / 1'000);
}

/// "true" or "false" for what YAML and people write for them; anything else stays.
std::string flag_word(const std::string& text) {
  std::string word = text;
  std::ranges::transform(word, word.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const char* const yes : {"true", "yes", "on", "1", "t", "y", "enable"}) {
    if (word == yes) return "true";
  }
  for (const char* const no : {"false", "no", "off", "0", "f", "n", "disable"}) {
    if (word == no) return "false";
  }
  return text;
}

/// The values of a setting as its option takes them; kInvalidArgument says what they should be.
Result<std::vector<std::string>> option_values(const OptionSpec& option, const AgentSetting& setting) {
  const bool is_list = std::holds_alternative<std::vector<std::string>*>(option.target);
  if (!is_list && setting.values.size() > 1)
    return invalid_argument(option.name + " takes one value, and not a list");
  std::vector<std::string> values = setting.values;
  for (std::string& value : values) {
    if (option.value.empty()) value = flag_word(value);
    if (option.value.empty() && value != "true" && value != "false")
      return invalid_argument(option.name + ": '" + value + "' is neither true nor false");
    if (const Result<Unit> good = check_value(option, value); !good) return good.error();
  }
  return values;
}

/// Whether the option or one that fills the same place was given.
bool is_settled(const Grammar& grammar, const OptionSpec& option) {
  return std::ranges::any_of(grammar.options(), [&](const OptionSpec& other) {
    return other.target == option.target && grammar.was_given(other);
  });
}

}  // namespace

Result<std::vector<AgentSetting>> read_agent_file(const std::string& path) {
  const Result<std::string> text = file_text(path);
  if (!text) return text.error();
  YAML::Node root;
  const auto at = [&path](const YAML::Mark& mark) { return path + ":" + std::to_string(mark.line + 1); };
  try {
    root = YAML::Load(*text);
  } catch (const YAML::Exception& failure) {
    return invalid_argument(yaml_problem(path, *text, failure.mark.line, failure.msg));
  }
  std::vector<AgentSetting> settings;
  if (root.IsNull()) return settings;
  if (!root.IsMap()) {
    return invalid_argument(at(root.Mark()) + ": expected keys such as `scheduler: host:9090`, one per line");
  }
  std::string problems;
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string where = at(entry.first.Mark());
    if (!entry.first.IsScalar()) {
      add_problem(problems, where + ": a key must be a name");
      continue;
    }
    AgentSetting setting{.name = dashed(entry.first.Scalar()), .values = {}, .where = where};
    if (!seen.insert(setting.name).second) {
      add_problem(problems, where + ": " + underscored(setting.name) + " is given twice; keep one");
    } else if (!take_values(setting.name, entry.second, setting.values)) {
      add_problem(problems,
                  where + ": " + underscored(setting.name) + " must be a value or a list of values");
    } else {
      settings.push_back(std::move(setting));
    }
  }
  if (!problems.empty()) return invalid_argument(problems);
  return settings;
}

Result<AgentEnvironment> read_agent_environment(const std::map<std::string, std::string>& environment) {
  constexpr std::string_view kPlain = "AGENT_";
  const std::string full = std::string(kConfigEnvironmentPrefix) + std::string(kPlain);
  AgentEnvironment out;
  std::string problems;
  for (const ConfigKey& key : config_keys()) {
    if (key.section != "agent") continue;
    const std::string prefixed = key.environment();
    const std::string plain = prefixed.substr(kConfigEnvironmentPrefix.size());
    auto found = environment.find(prefixed);
    if (found == environment.end() || found->second.empty()) found = environment.find(plain);
    if (found == environment.end() || found->second.empty()) continue;
    AgentSetting setting{
        .name = {}, .values = {found->second}, .where = "environment variable " + found->first};
    if (key.name == "node_id") {
      setting.name = "node";
    } else if (key.name == "container_runtime") {
      setting.name = "container-runtime";
    } else if (key.name == "health_check_interval_ms") {
      setting.name = "check-every-s";
      const std::optional<std::string> whole = whole_seconds(found->second);
      if (!whole) add_problem(problems, setting.where + ": expected " + key.expectation());
      setting.values = {whole.value_or("1")};
    } else {
      out.without_effect += (out.without_effect.empty() ? "" : ", ") + found->first;
      continue;
    }
    out.settings.push_back(std::move(setting));
  }
  for (auto at = environment.lower_bound(full); at != environment.end() && at->first.starts_with(full);
       ++at) {
    std::string name = at->first.substr(full.size());
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (find_config_key("agent", name) != nullptr) continue;
    const ConfigKey* const nearest = nearest_config_key("agent", name);
    add_problem(problems, "environment variable " + at->first + ": unknown key agent." + name +
                              (nearest == nullptr ? "; docs/reference/configuration.md lists the known ones"
                                                  : "; did you mean " + nearest->environment() + "?"));
  }
  if (!problems.empty()) return invalid_argument(problems);
  return out;
}

std::vector<AgentSetting> with_environment(std::vector<AgentSetting> file,
                                           const std::vector<AgentSetting>& environment) {
  for (const AgentSetting& setting : environment) {
    std::erase_if(file, [&](const AgentSetting& known) { return known.name == setting.name; });
    file.push_back(setting);
  }
  return file;
}

Result<Unit> give_settings(const Grammar& grammar, const std::vector<AgentSetting>& settings) {
  std::map<const OptionSpec*, std::vector<std::string>> values;
  std::set<const OptionSpec*> named;
  std::string problems;
  for (const AgentSetting& setting : settings) {
    const OptionSpec* const option = grammar.find("--" + setting.name);
    if (option == nullptr || is_for_the_command_line(setting.name)) {
      const std::string nearest = nearest_option(grammar, setting.name);
      add_problem(problems, setting.where + ": unknown key " + underscored(setting.name) +
                                (nearest.empty() ? "; the keys are the options that gpu-agent --help lists"
                                                 : "; did you mean " + underscored(nearest) + "?"));
      continue;
    }
    Result<std::vector<std::string>> own = option_values(*option, setting);
    if (!named.insert(option).second) {  // By another of its names.
      add_problem(problems, setting.where + ": " + underscored(setting.name) + " is given twice; keep one");
    } else if (!own) {
      add_problem(problems, setting.where + ": " + own.error().message);
    } else if (!is_settled(grammar, *option)) {  // The command line and the environment win.
      values[option] = std::move(*own);
    }
  }
  if (!problems.empty()) return invalid_argument(problems);
  // In the options' own order: where two fill one place, the later one holds.
  for (const OptionSpec& option : grammar.options()) {
    for (const std::string& value : values[&option]) {
      if (const Result<Unit> given = grammar.give(option, value); !given) return given;
    }
  }
  return Unit{};
}

std::vector<OptionChange> option_changes(const Grammar& before, const Grammar& after) {
  std::vector<OptionChange> changes;
  for (const OptionSpec& option : after.options()) {
    const OptionSpec* const old_option = before.find(option.name);
    const std::string old_value = old_option == nullptr ? "" : joined(before.values_of(*old_option));
    const std::string new_value = joined(after.values_of(option));
    if (old_value != new_value)
      changes.push_back({.name = without_dashes(option), .before = old_value, .after = new_value});
  }
  return changes;
}

}  // namespace gpusched
