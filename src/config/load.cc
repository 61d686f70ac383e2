#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "base/limits.h"
#include "base/net/endpoint.h"
#include "base/net/ip_network.h"
#include "base/net/webhook_url.h"
#include "config/config.h"
#include "config/keys.h"
#include "config/yaml_problem.h"

namespace gpusched {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kProblemsMax = 20;
constexpr size_t kShownBytesMax = 60;
constexpr int64_t kCompatibleOnlinePercent = 70;

/// Input for one key: a scalar, or a list of them.
struct RawValue {
  std::vector<std::string> items;
  bool is_list = false;
};

std::string shown(const ConfigKey& key, const RawValue& raw) {
  if (key.secret) return "(secret)";
  if (raw.is_list) return "a list";
  const std::string& text = raw.items.front();
  if (text.size() <= kShownBytesMax) return "\"" + text + "\"";
  return "\"" + text.substr(0, kShownBytesMax) + "...\"";
}

bool parse_bool(std::string_view text, bool& out) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool yes = lower == "true" || lower == "yes" || lower == "on" || lower == "1";
  const bool no = lower == "false" || lower == "no" || lower == "off" || lower == "0";
  out = yes;
  return yes || no;
}

template <typename Number>
bool parse_number(std::string_view text, const ConfigKey& key, Number& out) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc{} || stop != end) return false;
  const auto value = static_cast<double>(out);
  return std::isfinite(value) && value >= key.min && value <= key.max;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Writes a raw value into its slot; false when it is not what the key expects.
struct Assign {
  const ConfigKey& key;
  const RawValue& raw;

  bool operator()(bool* out) const { return !raw.is_list && parse_bool(raw.items.front(), *out); }
  bool operator()(int64_t* out) const { return !raw.is_list && parse_number(raw.items.front(), key, *out); }
  bool operator()(double* out) const {
    if (raw.is_list) return false;
    if (!key.automatic || raw.items.front() != "auto") return parse_number(raw.items.front(), key, *out);
    *out = *key.automatic;
    return true;
  }
  bool operator()(std::string* out) const {
    if (raw.is_list) return false;
    *out = raw.items.front();
    if (key.one_of.empty()) return true;
    const std::string padded = " " + std::string(key.one_of) + " ";
    return out->find(' ') == std::string::npos && padded.find(" " + *out + " ") != std::string::npos;
  }
  bool operator()(std::vector<std::string>* out) const {
    out->clear();
    if (raw.is_list) {
      *out = raw.items;
      return true;
    }
    // One string is a list separated by commas, as an environment variable has to write it.
    std::string_view rest = raw.items.front();
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string_view item = trimmed(rest.substr(0, comma));
      if (!item.empty()) out->emplace_back(item);
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return true;
  }
};

class Loader {
 public:
  void load_file(const std::string& path, const std::string& text);
  void load_environment(const std::map<std::string, std::string>& environment);
  void load_override(const ConfigOverride& override);
  void open_compatible_doors();
  void check_whole();

  bool failed() const { return !problems_.empty(); }
  Error error() const;
  LoadedConfig take() { return std::move(out_); }

 private:
  void check_socket(const std::string& key, const std::string& path);
  void check_api(const Config::Api& api);
  void check_anonymous(const Config& config);
  void check_jwt(const Config::Api& api);
  void check_endpoints(const Config::Tasks& tasks);
  void check_ports(const Config& config);
  void check_replicas();
  void load_section(const std::string& path, const std::string& section, const YAML::Node& keys);
  void load_value(const ConfigKey& key, const YAML::Node& value, const std::string& where);
  void set(const ConfigKey& key, const RawValue& raw, const std::string& from, const std::string& where);
  void problem(const std::string& field, const std::string& sentence);
  void unknown(const std::string& where, std::string_view section, std::string_view name,
               bool in_environment);

  LoadedConfig out_;
  std::vector<std::string> problems_;
  std::string first_field_;
};

std::string position(const std::string& path, const YAML::Mark& mark) {
  return path + ":" + std::to_string(mark.line + 1);
}

void Loader::problem(const std::string& field, const std::string& sentence) {
  if (problems_.empty()) first_field_ = field;
  problems_.push_back(sentence);
}

Error Loader::error() const {
  std::string message;
  for (size_t i = 0; i < std::min(problems_.size(), kProblemsMax); ++i) {
    if (i > 0) message += '\n';
    message += problems_[i];
  }
  if (problems_.size() > kProblemsMax) {
    message += "\nand " + std::to_string(problems_.size() - kProblemsMax) + " more problems";
  }
  return {.code = ErrorCode::kInvalidArgument, .message = message, .field = first_field_};
}

void Loader::unknown(const std::string& where, std::string_view section, std::string_view name,
                     bool in_environment) {
  const std::string full =
      section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
  const ConfigKey* const nearest = nearest_config_key(section, name);
  std::string sentence = where + ": unknown key " + full;
  if (nearest != nullptr) {
    sentence += "; did you mean " + (in_environment ? nearest->environment() : nearest->full_name()) + "?";
  } else {
    sentence += "; docs/reference/configuration.md lists the known keys";
  }
  problem(full, sentence);
}

void Loader::set(const ConfigKey& key, const RawValue& raw, const std::string& from,
                 const std::string& where) {
  const ConfigSlot slot = key.slot(out_.values);
  if (key.effect == ConfigEffect::kNone) {
    Config kept = out_.values;
    // A value that the key cannot hold leaves the old one.
    if (raw.items.empty() || !std::visit(Assign{key, raw}, slot)) out_.values = std::move(kept);
    out_.origins[key.full_name()] = from;
    return;
  }
  if (!std::visit(Assign{key, raw}, slot)) {
    problem(key.full_name(),
            where + ": " + key.full_name() + " is " + shown(key, raw) + "; expected " + key.expectation());
    return;
  }
  out_.origins[key.full_name()] = from;
}

void Loader::load_value(const ConfigKey& key, const YAML::Node& value, const std::string& where) {
  RawValue raw;
  bool scalars_only = true;
  if (value.IsScalar()) {
    raw.items.push_back(value.Scalar());
  } else if (value.IsSequence()) {
    raw.is_list = true;
    for (const YAML::Node& item : value) {
      scalars_only = scalars_only && item.IsScalar();
      if (item.IsScalar()) raw.items.push_back(item.Scalar());
    }
  } else if (value.IsNull()) {
    raw.items.emplace_back();
  } else {
    scalars_only = false;
  }
  if (!scalars_only && key.effect != ConfigEffect::kNone) {
    problem(key.full_name(), where + ": " + key.full_name() + " is " +
                                 (value.IsMap() ? "a group of keys" : "a list of groups") + "; expected " +
                                 key.expectation());
    return;
  }
  if (!scalars_only) raw = {};
  set(key, raw, where, where);
}

void Loader::load_section(const std::string& path, const std::string& section, const YAML::Node& keys) {
  std::set<std::string> seen;
  for (const auto& entry : keys) {
    const std::string where = position(path, entry.first.Mark());
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : std::string("(not a name)");
    const ConfigKey* const key = find_config_key(section, name);
    if (key == nullptr) {
      unknown(where, section, name, false);
      continue;
    }
    if (!seen.insert(name).second) {
      problem(key->full_name(), where + ": " + key->full_name() + " is given twice; keep one");
      continue;
    }
    load_value(*key, entry.second, where);
  }
}

void Loader::load_file(const std::string& path, const std::string& text) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& failure) {
    problem("", yaml_problem(path, text, failure.mark.line, failure.msg));
    return;
  }
  if (root.IsNull()) return;
  if (!root.IsMap()) {
    problem("", position(path, root.Mark()) + ": expected sections such as `api:` with keys below them");
    return;
  }
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string where = position(path, entry.first.Mark());
    const std::string section = entry.first.IsScalar() ? entry.first.Scalar() : std::string("(not a name)");
    if (const ConfigKey* const alone = find_config_key("", section)) {
      if (!seen.insert(section).second) {
        problem(section, where + ": " + section + " is given twice; keep one");
        continue;
      }
      load_value(*alone, entry.second, where);
      continue;
    }
    if (!is_config_section(section)) {
      const bool has_keys = entry.second.IsMap() && entry.second.size() > 0;
      if (!has_keys) {
        unknown(where, "", section, false);
        continue;
      }
      for (const auto& inner : entry.second) {
        unknown(position(path, inner.first.Mark()), section,
                inner.first.IsScalar() ? inner.first.Scalar() : std::string("(not a name)"), false);
      }
      continue;
    }
    if (!seen.insert(section).second) {
      problem(section, where + ": section " + section + " is given twice; merge the two entries");
      continue;
    }
    if (entry.second.IsNull()) continue;
    if (!entry.second.IsMap()) {
      problem(section, where + ": " + section + " is a section; put its keys below it");
      continue;
    }
    load_section(path, section, entry.second);
  }
}

void Loader::load_environment(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kConfigEnvironmentPrefix)) continue;
    std::string rest = name.substr(kConfigEnvironmentPrefix.size());
    for (char& c : rest) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const std::string where = "environment variable " + name;
    const ConfigKey* const alone = find_config_key("", rest);
    if (alone != nullptr && alone->environment() == name) {
      set(*alone, {.items = {value}}, where, where);
      continue;
    }
    const size_t underscore = rest.find('_');
    if (underscore == std::string::npos) continue;
    const std::string section = rest.substr(0, underscore);
    if (!is_config_section(section)) continue;
    const ConfigKey* const key = find_config_key(section, rest.substr(underscore + 1));
    if (key == nullptr || key->environment() != name) {
      unknown(where, section, rest.substr(underscore + 1), true);
      continue;
    }
    set(*key, {.items = {value}}, where, where);
  }
}

void Loader::load_override(const ConfigOverride& override) {
  const size_t dot = override.key.find('.');
  const std::string section = override.key.substr(0, dot);
  const std::string name = dot == std::string::npos ? "" : override.key.substr(dot + 1);
  const ConfigKey* const key = find_config_key(section, name);
  if (key == nullptr) {
    unknown(override.from, section, name, false);
    return;
  }
  set(*key, {.items = {override.value}}, override.from, override.from);
}

/// Checks the path of a Unix socket.
void Loader::check_socket(const std::string& key, const std::string& path) {
  if (path.empty() || path == "auto" || path.starts_with('/')) return;
  problem(key, key + " is \"" + path + "\"; expected auto, a path that starts with /, or nothing");
}

void Loader::check_api(const Config::Api& api) {
  if (api.address.empty()) {
    problem("api.address", "api.address is empty; expected an address such as 127.0.0.1 or 0.0.0.0");
  }
  check_socket("api.unix_socket", api.unix_socket);
  // Without either the scheduler makes its own.
  if (!api.enable_tls || api.tls_cert_path.empty() == api.tls_key_path.empty()) return;
  const std::string missing = api.tls_cert_path.empty() ? "api.tls_cert_path" : "api.tls_key_path";
  problem(missing, "api.enable_tls is true and " + missing +
                       " is empty; name the files of the certificate and of its private key, or neither of "
                       "them for a certificate of the scheduler's own authority");
}

/// Checks who is let in without a credential: a mistake there lets strangers in.
void Loader::check_anonymous(const Config& config) {
  for (const std::string& word : config.api.anonymous_may) {
    if (std::ranges::find(kAnonymousMay, word) != std::end(kAnonymousMay)) continue;
    problem("api.anonymous_may", "api.anonymous_may has the word \"" + word.substr(0, kShownBytesMax) +
                                     "\"; expected create_tenant, set_quota or priority_critical");
  }
  if (config.api.anonymous_networks.empty()) return;
  for (const std::string& text : config.api.anonymous_networks) {
    const std::string shown = "\"" + text.substr(0, kShownBytesMax) + "\"";
    const std::optional<IpNetwork> network = IpNetwork::parse(text);
    if (!network) {
      problem("api.anonymous_networks",
              "api.anonymous_networks has the entry " + shown +
                  "; expected an address or a network without bits beyond its prefix, such as 10.1.0.0/16");
    } else if (network->has_public_address() && !config.api.anonymous_public_networks) {
      problem("api.anonymous_networks", "api.anonymous_networks has the entry " + shown +
                                            ", in which are addresses of the Internet: anybody there could "
                                            "run jobs; name a smaller network, or "
                                            "set api.anonymous_public_networks: true if you want that");
    }
  }
  const bool closed = config.api.token_required || config.agent.accept_old_handshake;
  if (!closed) return;
  const std::string why = config.api.token_required ? "api.token_required" : "agent.accept_old_handshake";
  problem(
      why,
      why +
          " is true, which refuses every call without a credential, and api.anonymous_networks lets some in; "
          "remove one of them");
}

void Loader::check_jwt(const Config::Api& api) {
  const std::pair<const char*, const std::string&> needed[] = {{"api.jwt_audience", api.jwt_audience},
                                                               {"api.jwt_keys", api.jwt_keys},
                                                               {"api.jwt_rules_file", api.jwt_rules_file}};
  for (const auto& [name, value] : needed) {
    if (value.empty() == api.jwt_issuer.empty()) continue;
    const std::string missing = value.empty() ? name : "api.jwt_issuer";
    return problem(missing, missing + " is empty, but " + (value.empty() ? "api.jwt_issuer" : name) +
                                " is set; tokens need an issuer, an audience, keys and rules");
  }
  constexpr std::size_t kIssuerBytesMax = 150;  // It is a part of callers' names.
  const bool is_plain =
      std::ranges::all_of(api.jwt_issuer, [](char c) { return c > ' ' && c < 0x7F && c != '#'; });
  if (!is_plain || api.jwt_issuer.size() > kIssuerBytesMax)
    problem("api.jwt_issuer", "api.jwt_issuer is no URL such as https://login.example.com, of at most " +
                                  std::to_string(kIssuerBytesMax) + " bytes and without #");
  if (api.jwt_keys.find("://") != std::string::npos && !api.jwt_keys.starts_with("https://"))
    problem("api.jwt_keys",
            "api.jwt_keys is a URL that is not https: whoever alters it on its way could make tokens");
  for (const std::string& name : api.jwt_algorithms) {
    if (name == "EdDSA" || name == "ES256" || name == "RS256" || name == "HS256") continue;
    problem("api.jwt_algorithms", "api.jwt_algorithms has an entry that is not EdDSA, ES256, RS256 or HS256");
    break;
  }
}

/// Gives what nobody set the values that clients of other systems expect.
void Loader::open_compatible_doors() {
  if (!out_.values.doors.compatible) return;
  const auto set = [&](const std::string& key, int64_t& slot, int64_t value) {
    if (!out_.origins.emplace(key, "doors.compatible").second) return;
    slot = value;
  };
  Config& config = out_.values;
  const CompatiblePorts ports;
  set("tasks.grpc_port", config.tasks.grpc_port, ports.tasks_grpc);
  set("tasks.http_port", config.tasks.http_port, ports.tasks_http);
  set("doors.allocation_port", config.doors.allocation_port, ports.allocation);
  const bool has_pools = out_.origins.contains("scheduler.pool_online_percent") ||
                         out_.origins.contains("scheduler.pool_batch_percent");
  if (has_pools) return;
  set("scheduler.pool_online_percent", config.scheduler.pool_online_percent, kCompatibleOnlinePercent);
  set("scheduler.pool_batch_percent", config.scheduler.pool_batch_percent, 100 - kCompatibleOnlinePercent);
}

/// Checks rules about several keys.
void Loader::check_whole() {
  const Config& config = out_.values;
  if (!config.attained_gpu_seconds().has_value()) {
    problem("scheduler.attained_levels",
            "scheduler.attained_levels is [" + joined(config.scheduler.attained_levels) +
                "]; expected at most " + std::to_string(limits::kAttainedLevelsMax) +
                " GPU-seconds, each a positive integer greater than the one before");
  }
  check_api(config.api);
  check_socket("agent.unix_socket", config.agent.unix_socket);
  check_anonymous(config);
  check_jwt(config.api);
  if (!config.metrics.path.starts_with('/')) {
    problem("metrics.path",
            "metrics.path is \"" + config.metrics.path + "\"; expected a path that starts with /");
  }
  // Without a word of anybody's it follows the lease; what is written down holds, or is refused.
  const int64_t beat = config.agent.heartbeat_interval_ms;
  const int64_t lease = config.scheduler.node_lease_ms;
  if (out_.origins.contains("agent.heartbeat_interval_ms") && beat > lease / 3) {
    problem("agent.heartbeat_interval_ms",
            "agent.heartbeat_interval_ms is " + std::to_string(beat) +
                ", more than a third of scheduler.node_lease_ms (" + std::to_string(lease) +
                "): a single lost heartbeat would end a node's lease; set it to at most " +
                std::to_string(lease / 3) + ", or the lease to at least " + std::to_string(3 * beat));
  }
  if (config.scheduler.pool_online_percent + config.scheduler.pool_batch_percent > 100) {
    problem("scheduler.pool_online_percent",
            "scheduler.pool_online_percent and scheduler.pool_batch_percent add up to more than 100; lower "
            "one of them");
  }
  if (config.scheduler.fence_command.find('\0') != std::string::npos) {
    problem("scheduler.fence_command", "scheduler.fence_command contains a NUL byte; remove it");
  }
  const std::string& hook = config.scheduler.preempt_webhook_url;
  if (!hook.empty() && (hook.size() > limits::kPreemptUrlBytesMax || !parse_webhook_url(hook))) {
    problem("scheduler.preempt_webhook_url",
            "scheduler.preempt_webhook_url is not a URL such as http://hooks.example.com:8088/preempted");
  }
  for (const std::string& host : config.scheduler.preempt_webhook_hosts) {
    const std::optional<WebhookUrl> url = parse_webhook_url("http://" + host);
    if (url && url->target == "/" && !host.ends_with('/')) continue;
    problem("scheduler.preempt_webhook_hosts",
            "scheduler.preempt_webhook_hosts has an entry that is neither a host nor host:port; write, for "
            "example, hooks.example.com or 127.0.0.1:8088");
    break;
  }
  if (!parse_task_costs(config.admission.task_costs)) {
    problem("admission.task_costs",
            "admission.task_costs has an entry that is not type=tokens, or has a type twice; expected, for "
            "example, llm=5, with 1 to " +
                std::to_string(limits::kTaskCostMax) + " tokens");
  }
  if (!parse_user_weights(config.tasks.user_weights)) {
    problem("tasks.user_weights",
            "tasks.user_weights has an entry that is not user=weight with a weight from 0.01 to 10, or has a "
            "user twice; expected, for example, chat-bot=2.5");
  }
  if (!parse_task_cpu(config.tasks.cpu_milli)) {
    problem("tasks.cpu_milli",
            "tasks.cpu_milli has an entry that is neither a number of thousandths of a core nor type=number "
            "with a type "
            "of embedding, llm, diffusion and other, or has a type twice; expected, for example, llm=500");
  }
  check_endpoints(config.tasks);
  check_ports(config);
  check_replicas();
}

/// Callers of one replica reach the leader through the others: whoever connects is no caller of this machine.
void Loader::check_replicas() {
  Config& config = out_.values;
  const Result<std::vector<ReplicaPeer>> peers = replica_peers(config);
  if (!peers.ok()) return problem(peers.error().field, peers.error().message);
  if (peers->empty()) return;
  if (!config.api.anonymous_networks.empty()) {
    problem("api.anonymous_networks",
            "api.anonymous_networks lets callers in by their address, and with replica.peers they may come "
            "through another scheduler's; remove it, and give them a credential");
  }
  const std::pair<const char*, int64_t> fixed[] = {{"api.http_port", config.api.http_port},
                                                   {"api.grpc_port", config.api.grpc_port},
                                                   {"metrics.port", config.metrics.port}};
  for (const auto& [key, port] : fixed) {
    if (port != 0) continue;
    problem(key, std::string(key) +
                     " is 0, any free port, which changes when another scheduler of "
                     "replica.peers takes over; choose one");
  }
  for (const ReplicaPeer& peer : *peers) {
    if (peer.id != static_cast<uint64_t>(config.replica.id)) continue;
    for (const auto& [key, port] : fixed) {
      if (port != peer.port) continue;
      problem("replica.peers", std::string(key) + " and this scheduler's port in replica.peers are both " +
                                   std::to_string(port) + "; give them different ports");
    }
  }
  if (config.api.token_required) return;
  config.api.token_required = true;
  out_.origins["api.token_required"] = "replica.peers";
}

void Loader::check_endpoints(const Config::Tasks& tasks) {
  for (const std::string& host : tasks.endpoint_hosts) {
    const std::optional<WebhookUrl> url = parse_endpoint_url("http://" + host);
    if (url && url->target == "/" && !host.ends_with('/')) continue;
    problem("tasks.endpoint_hosts",
            "tasks.endpoint_hosts has an entry that is neither an IP address nor address:port; write, for "
            "example, 10.0.0.7:8000");
  }
  if (!tasks.endpoint_health_path.empty() && !is_health_path(tasks.endpoint_health_path)) {
    problem("tasks.endpoint_health_path",
            "tasks.endpoint_health_path is not a path such as /health; leave it empty for no checks");
  }
  const std::array<std::tuple<std::string, const std::string*, const std::string*>, 4> types = {
      {{"embedding", &tasks.embedding_endpoint, &tasks.embedding_command},
       {"llm", &tasks.llm_endpoint, &tasks.llm_command},
       {"diffusion", &tasks.diffusion_endpoint, &tasks.diffusion_command},
       {"other", &tasks.other_endpoint, &tasks.other_command}}};
  for (const auto& [type, endpoint, command] : types) {
    if (endpoint->empty()) continue;
    const std::string key = "tasks." + type + "_endpoint";
    const std::optional<WebhookUrl> url = parse_endpoint_url(*endpoint);
    if (!url) {
      problem(key, key +
                       " is not a URL with an IP address or localhost, such as "
                       "http://127.0.0.1:8000/v1/completions");
    } else if (!is_loopback(*url) && !is_listed(*url, tasks.endpoint_hosts)) {
      problem(key, key + " names " + url->host +
                       ", which is not the node itself; use 127.0.0.1, or list the "
                       "address in tasks.endpoint_hosts");
    }
    if (!command->empty())
      problem(key, key + " and tasks." + type + "_command are both set; remove one of them");
  }
}

void Loader::check_ports(const Config& config) {
  struct Port {
    std::string_view key;
    int64_t number;
  };
  std::vector<Port> ports = {{"api.http_port", config.api.http_port},
                             {"api.grpc_port", config.api.grpc_port},
                             {"tasks.grpc_port", config.tasks.grpc_port},
                             {"tasks.http_port", config.tasks.http_port},
                             {"doors.allocation_port", config.doors.allocation_port}};
  if (config.metrics.enabled) ports.push_back({"metrics.port", config.metrics.port});
  for (size_t i = 0; i < ports.size(); ++i) {
    for (size_t j = i + 1; j < ports.size(); ++j) {
      if (ports[i].number == 0 || ports[i].number != ports[j].number) continue;
      problem(std::string(ports[j].key), std::string(ports[i].key) + " and " + std::string(ports[j].key) +
                                             " are both " + std::to_string(ports[i].number) +
                                             "; give them different ports");
    }
  }
}

Result<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int reason = errno;
    return Error{.code = reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 .message = "cannot read the configuration file " + path + ": " + std::strerror(reason)};
  }
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    return Error{.code = ErrorCode::kIo, .message = "cannot read the configuration file " + path};
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return Error{.code = ErrorCode::kTooLarge,
                 .message = "the configuration file " + path +
                            " is larger than 1 MiB; check that it is the right file"};
  }
  return text;
}

}  // namespace

std::optional<std::map<std::string, int64_t>> parse_task_costs(const std::vector<std::string>& entries) {
  std::map<std::string, int64_t> costs;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos) return std::nullopt;
    int64_t tokens = 0;
    const char* const end = entry.data() + entry.size();
    const auto [rest, failure] = std::from_chars(entry.data() + equals + 1, end, tokens);
    if (failure != std::errc{} || rest != end || tokens < 1 || tokens > limits::kTaskCostMax)
      return std::nullopt;
    if (!costs.emplace(entry.substr(0, equals), tokens).second) return std::nullopt;
  }
  return costs;
}

std::optional<std::map<std::string, int64_t>> parse_task_cpu(const std::vector<std::string>& entries) {
  const auto number_of = [](std::string_view text) -> std::optional<int64_t> {
    int64_t milli = 0;
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), milli);
    const bool sound = failure == std::errc{} && rest == text.data() + text.size() && milli >= 0;
    return sound && milli <= int64_t{limits::kCpuCoresMax} * 1'000 ? std::optional(milli) : std::nullopt;
  };
  std::map<std::string, int64_t> cpu;
  std::optional<int64_t> others;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    const std::optional<int64_t> milli = number_of(
        equals == std::string::npos ? std::string_view(entry) : std::string_view(entry).substr(equals + 1));
    if (!milli) return std::nullopt;
    if (equals == std::string::npos) {
      if (others) return std::nullopt;
      others = milli;
      continue;
    }
    const std::string type = entry.substr(0, equals);
    const bool is_known = std::ranges::find(kTaskTypes, type) != std::end(kTaskTypes);
    if (!is_known || !cpu.emplace(type, *milli).second) return std::nullopt;
  }
  if (others) {
    for (const std::string_view type : kTaskTypes) cpu.emplace(type, *others);
  } else if (cpu.size() < std::size(kTaskTypes)) {
    cpu.merge(*parse_task_cpu(Config{}.tasks.cpu_milli));
  }
  return cpu;
}

std::optional<std::map<std::string, int64_t>> parse_user_weights(const std::vector<std::string>& entries) {
  constexpr double kWeightMin = 0.01, kWeightMax = 10;
  std::map<std::string, int64_t> weights;
  for (const std::string& entry : entries) {
    const size_t equals = entry.rfind('=');  // A user's name may have one, too.
    if (equals == 0 || equals == std::string::npos) return std::nullopt;
    double weight = 0;
    const char* const end = entry.data() + entry.size();
    const auto [rest, failure] = std::from_chars(entry.data() + equals + 1, end, weight);
    const bool sound = failure == std::errc{} && rest == end && weight >= kWeightMin && weight <= kWeightMax;
    if (!sound || !weights.emplace(entry.substr(0, equals), std::llround(weight * 1'000)).second)
      return std::nullopt;
  }
  return weights;
}

std::optional<std::vector<int64_t>> Config::attained_gpu_seconds() const {
  if (scheduler.attained_levels.size() > limits::kAttainedLevelsMax) return std::nullopt;
  std::vector<int64_t> levels;
  for (const std::string& text : scheduler.attained_levels) {
    int64_t level = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, level);
    const int64_t least = levels.empty() ? 1 : levels.back() + 1;
    if (error != std::errc{} || stop != end || level < least || level > limits::kAttainedGpuSecondsMax)
      return std::nullopt;
    levels.push_back(level);
  }
  return levels;
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

Result<LoadedConfig> load_config(const ConfigInputs& inputs) {
  Loader loader;
  if (!inputs.path.empty()) {
    const Result<std::string> text = read_file(inputs.path);
    if (!text) return text.error();
    loader.load_file(inputs.path, *text);
  }
  loader.load_environment(inputs.environment);
  for (const ConfigOverride& override : inputs.overrides) loader.load_override(override);
  loader.open_compatible_doors();
  if (!loader.failed()) loader.check_whole();
  if (loader.failed()) return loader.error();
  return loader.take();
}

}  // namespace gpusched
