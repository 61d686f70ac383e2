#include "pilot/settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>

#include "base/errors.h"
#include "config/yaml_problem.h"
#include "grammar/grammar.h"
#include "ops/machine.h"

namespace gpusched::pilot {
namespace {

using anticipate::Meaning;
using anticipate::Rule;
using anticipate::Source;

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr std::size_t kProblemsMax = 20;
constexpr std::size_t kMonitorsMax = 64;
constexpr int64_t kMinutesMax = 7 * 24 * 60;

/// Reads the keys of one map. Each key has one function, which says whether the value is fit.
class Reader {
 public:
  using Take = std::function<bool(const YAML::Node&)>;
  struct Key {
    std::string name, expected;
    Take take;
  };

  Reader(std::string path, std::string home) : path_(std::move(path)), home_(std::move(home)) {}

  void read(const YAML::Node& map, const std::string& where, const std::vector<Key>& keys) {
    if (!map.IsMap()) return problem(map, (where.empty() ? "the file" : where) + " is no group of keys");
    std::map<std::string, int> times;
    for (const auto& entry : map) {
      const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "(not a name)";
      const std::string full = where.empty() ? name : where + "." + name;
      const auto key = std::ranges::find(keys, name, &Key::name);
      if (key == keys.end()) {
        std::vector<std::string> known;
        for (const Key& one : keys) known.push_back(one.name);
        const std::string nearest = nearest_of(name, known);
        problem(entry.first,
                "unknown key " + full + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
      } else if (times[name]++ > 0) {
        problem(entry.first, full + " is given twice; keep one");
      } else if (!key->take(entry.second)) {
        problem(entry.first, full + " is wrong; expected " + key->expected);
      }
    }
  }

  void problem(const YAML::Node& at, const std::string& sentence) {
    problems_.push_back(path_ + ":" + std::to_string(at.Mark().line + 1) + ": " + sentence);
  }

  std::optional<Error> error() const {
    if (problems_.empty()) return std::nullopt;
    std::string text;
    for (std::size_t at = 0; at < std::min(problems_.size(), kProblemsMax); ++at)
      text += (at > 0 ? "\n" : "") + problems_[at];
    return invalid_argument(text);
  }

  // Keys by the kind of their value.
  static Key text(std::string name, std::string& out) {
    return {std::move(name), "a text", [&out](const YAML::Node& node) {
              if (!node.IsScalar()) return false;
              out = node.Scalar();
              return true;
            }};
  }
  Key path(std::string name, std::string& out) const {
    return {
        std::move(name), "an absolute path, or one that begins with ~/",
        [&out, this](const YAML::Node& node) { return node.IsScalar() && take_path(node.Scalar(), out); }};
  }
  static Key number(std::string name, int64_t least, int64_t most, const std::function<void(int64_t)>& take) {
    return {std::move(name), "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
            [least, most, take](const YAML::Node& node) {
              const std::optional<int64_t> value = whole(node);
              if (!value || *value < least || *value > most) return false;
              take(*value);
              return true;
            }};
  }
  static Key networks(std::string name, std::vector<IpNetwork>& out) {
    return {std::move(name), "a list of addresses or networks, such as 10.1.0.0/16",
            [&out](const YAML::Node& node) {
              std::vector<std::string> given;
              if (!take_texts(node, given)) return false;
              for (const std::string& one : given) {
                const std::optional<IpNetwork> network = IpNetwork::parse(one);
                if (!network) return false;
                out.push_back(*network);
              }
              return true;
            }};
  }
  static Key span_of_minutes(std::string name, Duration& out, int64_t least = 1) {
    return number(std::move(name), least, kMinutesMax, [&out](int64_t value) { out = minutes(value); });
  }
  static Key texts(std::string name, std::vector<std::string>& out) {
    return {std::move(name), "a list of texts",
            [&out](const YAML::Node& node) { return take_texts(node, out); }};
  }
  Key paths(std::string name, std::vector<std::string>& out) const {
    return {std::move(name), "a list of absolute paths, or of ones that begin with ~/",
            [&out, this](const YAML::Node& node) {
              std::vector<std::string> given;
              if (!take_texts(node, given)) return false;
              for (const std::string& one : given) {
                std::string whole_path;
                if (!take_path(one, whole_path)) return false;
                out.push_back(std::move(whole_path));
              }
              return true;
            }};
  }

 private:
  static std::optional<int64_t> whole(const YAML::Node& node) {
    if (!node.IsScalar()) return std::nullopt;
    const std::string& given = node.Scalar();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    return error == std::errc{} && end == given.data() + given.size() ? std::optional(value) : std::nullopt;
  }
  static bool take_texts(const YAML::Node& node, std::vector<std::string>& out) {
    if (node.IsScalar()) {
      out.push_back(node.Scalar());
      return true;
    }
    if (!node.IsSequence()) return false;
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) return false;
      out.push_back(item.Scalar());
    }
    return true;
  }
  bool take_path(const std::string& given, std::string& out) const {
    if (given.starts_with("~/")) {
      if (home_.empty()) return false;
      out = home_ + given.substr(1);
      return true;
    }
    out = given;
    return given.starts_with("/");
  }

  const std::string path_, home_;
  std::vector<std::string> problems_;
};

bool read_sources(const YAML::Node& node, std::vector<Source>& out) {
  if (!node.IsSequence()) return false;
  for (const YAML::Node& item : node) {
    const auto source = item.IsScalar() ? anticipate::parse_source(item.Scalar()) : std::nullopt;
    if (!source) return false;
    out.push_back(*source);
  }
  return true;
}

void read_rule(Reader& reader, const YAML::Node& node, PilotSettings& settings) {
  Rule rule;
  std::string meaning = "need";
  reader.read(node, "rules",
              {Reader::text("name", rule.name),
               {"on", "a list of log, file, process, shell, custom",
                [&](const YAML::Node& value) { return read_sources(value, rule.sources); }},
               Reader::texts("all", rule.all),
               Reader::texts("any", rule.any),
               Reader::texts("none", rule.none),
               {"meaning", "need or over",
                [&](const YAML::Node& value) {
                  meaning = value.IsScalar() ? value.Scalar() : "";
                  return meaning == "need" || meaning == "over";
                }},
               Reader::number("weight", -anticipate::kWeightMax, anticipate::kWeightMax,
                              [&](int64_t value) { rule.weight = static_cast<int32_t>(value); }),
               Reader::number("gpus", 1, 64, [&](int64_t value) { rule.gpus = static_cast<int32_t>(value); }),
               Reader::texts("gpus_from", rule.gpus_from),
               Reader::text("gpu_model", rule.gpu_model),
               Reader::number("memory_gb", 0, 1'000'000, [&](int64_t value) { rule.memory_gb = value; })});
  if (meaning == "over") rule.meaning = Meaning::kOver;
  if (const Result<Unit> checked = anticipate::check_rule(rule); !checked)
    return reader.problem(node, checked.error().message);
  if (settings.rules.size() >= anticipate::kRulesMax)
    return reader.problem(node, "there are more than 200 rules");
  // A rule of the user takes the place of a built-in one of its name.
  std::erase_if(settings.rules, [&](const Rule& other) { return other.name == rule.name; });
  settings.rules.push_back(std::move(rule));
}

void read_monitor(Reader& reader, const YAML::Node& node, PilotSettings& settings) {
  MonitorSettings monitor;
  std::string kind;
  reader.read(node, "monitors",
              {Reader::text("name", monitor.name),
               {"kind", "log, file, process, shell or custom",
                [&](const YAML::Node& value) {
                  const auto source =
                      value.IsScalar() ? anticipate::parse_source(value.Scalar()) : std::nullopt;
                  if (!source || *source == Source::kModel) return false;
                  monitor.source = *source;
                  kind = value.Scalar();
                  return true;
                }},
               reader.paths("paths", monitor.paths),
               Reader::texts("suffixes", monitor.suffixes),
               Reader::texts("command", monitor.command),
               Reader::number("weight_max", 1, anticipate::kWeightMax,
                              [&](int64_t value) { monitor.weight_max = static_cast<int32_t>(value); })});
  if (kind.empty())
    return reader.problem(node, "a monitor needs a kind: log, file, process, shell or custom");
  if (monitor.name.empty()) monitor.name = kind;
  const bool wants_paths =
      monitor.source == Source::kLog || monitor.source == Source::kFile || monitor.source == Source::kShell;
  if (wants_paths && monitor.paths.empty())
    return reader.problem(node, "monitor " + monitor.name + " needs paths");
  if (monitor.source == Source::kCustom && monitor.command.empty())
    return reader.problem(node, "monitor " + monitor.name + " needs a command");
  if (std::ranges::any_of(settings.monitors, [&](const auto& other) { return other.name == monitor.name; }))
    return reader.problem(node,
                          "two monitors have the name " + monitor.name + "; give each one a name of its own");
  if (settings.monitors.size() >= kMonitorsMax)
    return reader.problem(node, "there are more than 64 monitors");
  if (monitor.source == Source::kFile && monitor.suffixes.empty())
    monitor.suffixes = {".py", ".ipynb", ".sh", ".yaml", ".yml", ".toml", ".json"};
  settings.monitors.push_back(std::move(monitor));
}

bool read_landlock(const YAML::Node& node, LandlockUse& out) {
  const std::string word = node.IsScalar() ? node.Scalar() : "";
  if (word == "off") out = LandlockUse::kOff;
  if (word == "required") out = LandlockUse::kRequired;
  return word == "off" || word == "required" || word == "auto";
}

/// A key whose value is a list of maps, each read by `each`.
Reader::Key list_of(Reader& reader, std::string name, const std::function<void(const YAML::Node&)>& each) {
  return {std::move(name), "a list of groups of keys", [&reader, each](const YAML::Node& node) {
            if (!node.IsSequence()) return node.IsNull();
            for (const YAML::Node& item : node) {
              if (item.IsMap()) {
                each(item);
              } else {
                reader.problem(item, "expected a group of keys, such as `- name: mine`");
              }
            }
            return true;
          }};
}

Reader::Key group_of(Reader& reader, const std::string& name, std::vector<Reader::Key> keys) {
  return {name, "a group of keys", [&reader, name, keys = std::move(keys)](const YAML::Node& node) {
            if (node.IsNull()) return true;
            if (!node.IsMap()) return false;
            reader.read(node, name, keys);
            return true;
          }};
}

Reader::Key model_keys(Reader& reader, ModelSettings& model) {
  return group_of(
      reader, "model",
      {Reader::text("url", model.url),
       Reader::text("name", model.name),
       {"api", "openai or anthropic",
        [&model](const YAML::Node& node) {
          model.is_anthropic = node.IsScalar() && node.Scalar() == "anthropic";
          return model.is_anthropic || (node.IsScalar() && node.Scalar() == "openai");
        }},
       reader.path("key_file", model.key_file),
       reader.path("ca_file", model.ca_file),
       Reader::networks("addresses", model.addresses),
       Reader::text("prompt", model.prompt),
       Reader::number("timeout_seconds", 1, 30, [&model](int64_t value) { model.timeout = seconds(value); }),
       Reader::number("ask_from", 1, 1'000,
                      [&model](int64_t value) { model.ask_from = static_cast<int32_t>(value); }),
       Reader::number("weight_max", 1, anticipate::kWeightMax,
                      [&model](int64_t value) { model.weight_max = static_cast<int32_t>(value); }),
       Reader::number("tokens_per_day", 0, 1'000'000'000,
                      [&model](int64_t value) { model.tokens_per_day = value; }),
       Reader::number("cents_per_million_tokens", 0, 1'000'000,
                      [&model](int64_t value) { model.cents_per_million_tokens = value; }),
       Reader::number("cents_per_day", 0, 1'000'000,
                      [&model](int64_t value) { model.cents_per_day = value; })});
}

void read_all(Reader& reader, const YAML::Node& root, PilotSettings& settings) {
  anticipate::Settings& decide = settings.decide;
  anticipate::Bounds& bounds = decide.bounds;
  std::vector<std::string> off;
  settings.rules = anticipate::builtin_rules();
  reader.read(
      root, "",
      {group_of(
           reader, "api",
           {Reader::text("url", settings.api_url), reader.path("token_file", settings.token_file),
            reader.path("ca_file", settings.ca_file), Reader::networks("addresses", settings.api_addresses),
            Reader::number("poll_seconds", 1, 300, [&](int64_t value) { settings.poll = seconds(value); })}),
       {"landlock", "auto, off or required",
        [&](const YAML::Node& node) { return read_landlock(node, settings.landlock); }},
       reader.path("passphrase_file", settings.passphrase_file),
       reader.path("state_dir", settings.state_dir),
       group_of(reader, "bounds",
                {Reader::number("gpus_max", 1, 64,
                                [&](int64_t value) { bounds.gpus_max = static_cast<int32_t>(value); }),
                 Reader::number("leases_max", 1, 16,
                                [&](int64_t value) { bounds.leases_max = static_cast<int32_t>(value); }),
                 Reader::number("gpu_minutes_per_day", 1, 1'000'000,
                                [&](int64_t value) { bounds.gpu_minutes_per_day = value; }),
                 Reader::span_of_minutes("held_max_minutes", bounds.held_max)}),
       group_of(reader, "decide",
                {Reader::number("threshold", 1, 1'000,
                                [&](int64_t value) { decide.threshold = static_cast<int32_t>(value); }),
                 Reader::span_of_minutes("window_minutes", decide.window),
                 Reader::span_of_minutes("cooldown_minutes", decide.cooldown, 0),
                 Reader::span_of_minutes("lease_minutes", decide.lease),
                 Reader::number("idle_seconds", 1, kMinutesMax * 60,
                                [&](int64_t value) { decide.idle = seconds(value); }),
                 Reader::number("unused_seconds", 1, kMinutesMax * 60,
                                [&](int64_t value) { decide.unused = seconds(value); })}),
       model_keys(reader, settings.model),
       Reader::texts("rules_off", off),
       list_of(reader, "rules", [&](const YAML::Node& node) { read_rule(reader, node, settings); }),
       list_of(reader, "monitors", [&](const YAML::Node& node) { read_monitor(reader, node, settings); })});
  if (!settings.model.url.empty() && settings.model.name.empty())
    reader.problem(root["model"], "model.name is missing: the name of the model at its server");
  for (const std::string& name : off) {
    const bool all = name == "all";
    const std::size_t known = std::erase_if(settings.rules, [&](const Rule& rule) {
      const std::vector<Rule> builtin = anticipate::builtin_rules();
      return (all && std::ranges::any_of(builtin, [&](const Rule& one) { return one.name == rule.name; })) ||
             rule.name == name;
    });
    if (known == 0 && !all) reader.problem(root["rules_off"], "rules_off: there is no rule " + name);
  }
}

}  // namespace

Result<PilotSettings> parse_settings(const std::string& text, const std::string& path,
                                     const std::string& home) {
  PilotSettings settings{.path = path};
  if (!home.empty()) settings.state_dir = home + "/.local/state/gpu-pilot";
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& failure) {
    return invalid_argument(yaml_problem(path, text, failure.mark.line, failure.msg));
  }
  Reader reader(path, home);
  if (!root.IsNull()) read_all(reader, root, settings);
  if (const std::optional<Error> error = reader.error()) return *error;
  if (settings.monitors.empty())
    return invalid_argument(
        path + ": there are no monitors; `gpu-pilot example` prints a configuration to begin with");
  if (settings.state_dir.empty()) return invalid_argument(path + ": give state_dir: there is no home folder");
  return settings;
}

Result<PilotSettings> read_settings(const std::string& path, const std::string& home) {
  const std::optional<std::string> text = ops::read_text(path, kFileBytesMax + 1);
  if (!text) {
    return Error{
        .code = ErrorCode::kNotFound,
        .message = "cannot read the configuration " + path + "; write one: gpu-pilot example > " + path};
  }
  if (text->size() > kFileBytesMax)
    return invalid_argument("the configuration " + path + " is larger than 1 MiB");
  return parse_settings(*text, path, home);
}

std::string example_settings() {
  return R"(# Configuration of gpu-pilot. `gpu-pilot check` reads it; `gpu-pilot run --dry-run` tries it.

# The scheduler. Without a URL: the one of this machine, which knows its users without a token.
#api:
#  url: https://gpus.example.org:8080
#  token_file: ~/.config/gpu-pilot/token    # an API key, perhaps of `gpu-pilot seal`; only you may read the file
#  ca_file: ~/.config/gpu-pilot/ca.pem
#  addresses: [10.1.0.0/16]                  # the only ones that the host may have

# No text can make the pilot ask for more than this.
bounds:
  gpus_max: 1                # GPUs in one lease
  leases_max: 1
  gpu_minutes_per_day: 480
  held_max_minutes: 240      # a lease is not extended beyond

decide:
  threshold: 100             # sum of the weights of what was seen
  window_minutes: 15
  cooldown_minutes: 10       # by monitor
  lease_minutes: 10          # a lease ends so long after the pilot stopped extending it
  idle_seconds: 300          # a lease that was used goes back after so long without use
  unused_seconds: 600        # one that nobody used

monitors:
  - {name: runs, kind: log, paths: ["~/runs/**/*.log"]}
  - {name: code, kind: file, paths: ["~/work"]}
  - {name: processes, kind: process}
  - {name: shell, kind: shell, paths: ["~/.bash_history", "~/.zsh_history"]}
#  - {name: calendar, kind: custom, command: [/home/me/bin/calendar-monitor], weight_max: 60}

# Whether the kernel holds the pilot to its files and ports: auto (where it can), required, off.
#landlock: auto

# Passphrase of sealed secrets. Without a file it is asked for on the terminal.
#passphrase_file: /run/user/1000/credentials/passphrase

# A model of your choice, asked about signs that do not suffice by themselves. It is told the signs, without secrets.
#model: {api: openai, url: "http://127.0.0.1:11434", name: my-model}    # llama.cpp, Ollama, vLLM, or a service by https

# Rules beside the built-in ones (`gpu-pilot check --rules` lists them). A name of theirs replaces one.
#rules:
#  - name: nightly-render
#    on: [log]
#    all: ["scene * queued"]      # all of these, `*` stands for anything within a line
#    none: ["preview"]
#    weight: 100
#    gpus: 1
#rules_off: [look-for-gpu]
)";
}

}  // namespace gpusched::pilot
