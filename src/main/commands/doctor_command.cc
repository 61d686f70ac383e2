#include "main/commands/doctor_command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <sstream>

#include "api/contract/token.h"
#include "base/limits.h"
#include "base/storage_limits.h"
#include "base/text/civil_time.h"
#include "client/http_client.h"
#include "client/json.h"
#include "client/local_token.h"
#include "main/callers/anonymous_callers.h"
#include "main/commands/check_database.h"
#include "main/commands/check_keys.h"
#include "main/commands/check_nodes.h"
#include "main/own_certificate.h"
#include "main/serve.h"
#include "main/tokens/jwt_service.h"
#include "ops/api_socket.h"
#include "ops/checks.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

constexpr const char* kConfigDefault = "/etc/gpu-scheduler/scheduler.yaml";
constexpr const char* kDataDirDefault = "/var/lib/gpu-scheduler";
constexpr int kKeyPagesMax = 200;

/// The process that holds a lock of flock(2) on `path`, out of /proc/locks; 0: nobody, or not to be seen.
int64_t lock_holder(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return 0;
  const std::string inode = ":" + std::to_string(facts.st_ino);
  std::istringstream lines(ops::read_text("/proc/locks").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string number, kind, mode, access, place;
    int64_t pid = 0;
    if (words >> number >> kind >> mode >> access >> pid >> place && kind == "FLOCK" &&
        place.ends_with(inode))
      return pid;
  }
  return 0;
}

bool is_locked(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool locked = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return locked;
}

/// The process that serves the folder, as ports.json has it; 0: nobody who lives.
struct Running {
  int64_t pid = 0;
  int64_t http_port = 0;
  bool https = false;
  std::string agent_socket;
};
Running running_scheduler(const std::string& data_dir) {
  const Result<Json> ports = Json::parse(ops::read_text(data_dir + "/ports.json").value_or(""));
  if (!ports.ok()) return {};
  const int64_t pid = (*ports)["pid"].integer();
  if (pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return {};
  return {.pid = pid,
          .http_port = (*ports)["http"].integer(),
          .https = (*ports)["https"].boolean(),
          .agent_socket = (*ports)["agent_socket"].text()};
}

Finding check_owner(const std::string& data_dir, const Running& running) {
  // Both are locked; the file may have been removed.
  const std::string folder = data_dir + "/journal";
  const std::string lock = is_locked(folder) ? folder : folder + "/LOCK";
  if (!is_locked(lock)) return {.check = "owner", .detail = "no scheduler has " + data_dir + " open"};
  const int64_t holder = lock_holder(lock);
  if (running.pid != 0 && (holder == 0 || holder == running.pid)) {
    return {.check = "owner", .detail = "process " + std::to_string(running.pid) + " serves " + data_dir};
  }
  const std::string who = holder == 0 ? "another process" : "process " + std::to_string(holder);
  return {
      .check = "owner",
      .verdict = Verdict::kWarn,
      .detail = who + " has " + data_dir + " open but does not serve it: it is recovering, stopping or hung",
      .fix = holder == 0 ? "fuser -v " + ops::shell_quoted(lock) : "ps -fp " + std::to_string(holder)};
}

/// Checks the socket by which agents of this machine come without a token.
Finding check_agent_socket(const Running& running) {
  Finding finding{.check = "agent_socket"};
  if (running.agent_socket.empty()) {
    finding.detail = "no Unix socket for agents: those of this machine prove the token, as all others do";
  } else if (::access(running.agent_socket.c_str(), W_OK) != 0 && errno == EACCES) {
    finding.detail = "agents of this machine come without a token at " + running.agent_socket +
                     ", which this user cannot try";
  } else if (ops::find_api_socket({running.agent_socket}).empty()) {
    finding.verdict = Verdict::kWarn;
    finding.detail = "nobody whom this user may believe answers at " + running.agent_socket +
                     ", where agents of this machine come without a token";
    finding.fix = "ls -ld " + ops::shell_quoted(running.agent_socket) + " && systemctl restart gpu-scheduler";
  } else {
    finding.detail = "agents of this machine that run as root or as the scheduler's user need no token: " +
                     running.agent_socket;
  }
  return finding;
}

/// How the scheduler is reached.
struct Door {
  std::string url, token_file, certificate;
};
Door door_of(const Config& config, const Running& running, const std::string& data_dir) {
  const std::string host = config.api.address == "0.0.0.0" ? "127.0.0.1" : config.api.address;
  const std::string bracketed = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return {
      .url = (running.https ? "https://" : "http://") + bracketed + ":" + std::to_string(running.http_port),
      .token_file = data_dir + "/token",
      .certificate = tls_files(config, data_dir).certificate};
}

/// Asks with the folder's token, where this user may read it and the process that listens may have it.
Result<HttpAnswer> ask(const Door& door, const std::string& target) {
  const bool sent = check_token_receiver(door.url, door.token_file).ok();
  Result<HttpClient> client =
      HttpClient::create({.url = door.url,
                          .token = sent ? ops::read_line(door.token_file).value_or("") : std::string(),
                          .server_certificate = door.certificate});
  if (!client) return client.error();
  return client->request({.method = "GET", .target = target, .timeout = seconds(5), .repeatable = true});
}

Finding check_health(const Config& config, const Running& running, const std::string& data_dir) {
  const Door door = door_of(config, running, data_dir);
  const std::string &url = door.url, &token_file = door.token_file;
  if (running.https && door.certificate.empty()) {
    return {
        .check = "health",
        .verdict = Verdict::kWarn,
        .detail = "it speaks TLS at " + url + ", and this configuration names no certificate to know it by",
        .fix = "gpu-scheduler doctor --config /etc/gpu-scheduler/scheduler.yaml    # the scheduler's own"};
  }
  const Result<HttpAnswer> answer = ask(door, "/health");
  Finding finding{.check = "health", .verdict = Verdict::kFail};
  if (!answer.ok()) {
    finding.detail = "process " + std::to_string(running.pid) + " does not answer at " + url + ": " +
                     answer.error().message;
    finding.fix = "journalctl -u gpu-scheduler -n 50    # or its log file";
    return finding;
  }
  if (answer->status == 401) {
    finding.detail = "it answers at " + url + ", and does not know what " + token_file + " holds now";
    finding.fix = "systemctl restart gpu-scheduler    # takes that token; then join the nodes again";
    return finding;
  }
  const Result<Json> body = Json::parse(answer->body);
  if (answer->status == 200) {
    std::string concerns;
    if (body.ok()) {
      for (const Json& concern : (*body)["concerns"].items()) concerns += "; but " + concern.text();
    }
    finding.verdict = concerns.empty() ? Verdict::kOk : Verdict::kWarn;
    finding.detail = "it answers at " + url + " and accepts new jobs" + concerns;
    if (!concerns.empty())
      finding.fix = "journalctl -u gpu-scheduler -n 50    # docs/operate/troubleshoot.md";
    return finding;
  }
  finding.detail = "it accepts no new jobs: " + (body.ok() ? (*body)["error"].text() : answer->body);
  finding.fix = "df -h; journalctl -u gpu-scheduler -n 50";
  return finding;
}

/// A time as the API writes it, rounded down to the second. Not valid when the text is no time.
Time instant(const std::string& text) {
  const std::optional<int64_t> second = parse_utc(text.substr(0, text.find_first_of(".Z")) + "Z");
  return second ? Time{} + seconds(*second) : Time{};
}

/// All keys in use, when the scheduler tells: else nobody knows of any.
std::optional<std::vector<KeyFacts>> ask_keys(const Door& door) {
  std::vector<KeyFacts> keys;
  std::string token;
  for (int page = 0; page < kKeyPagesMax; ++page) {
    const Result<HttpAnswer> answer =
        ask(door, "/v1/keys?page_size=1000" + (token.empty() ? "" : "&page_token=" + token));
    if (!answer.ok() || answer->status != 200) return std::nullopt;
    const Result<Json> body = Json::parse(answer->body);
    if (!body.ok()) return std::nullopt;
    for (const Json& key : (*body)["keys"].items()) {
      keys.push_back({.id = key["key_id"].text(),
                      .holder = key["holder"].text(),
                      .prefix = key["prefix"].text(),
                      .created_at = instant(key["created_at"].text()),
                      .expires_at = instant(key["expires_at"].text()),
                      .last_used_at = instant(key["last_used_at"].text())});
    }
    token = (*body)["next_page_token"].text();
    if (token.empty()) break;
  }
  return keys;
}

std::vector<Finding> check_keys_of(const Config& config, const Running& running,
                                   const std::string& data_dir) {
  const auto keys = ask_keys(door_of(config, running, data_dir));
  if (!keys) return {};
  return check_keys(*keys, Time{int64_t{std::time(nullptr)} * 1'000'000'000});
}

/// All nodes with certificates, when the scheduler tells.
std::vector<Finding> check_nodes_of(const Config& config, const Running& running,
                                    const std::string& data_dir) {
  const Door door = door_of(config, running, data_dir);
  std::vector<NodeFacts> nodes;
  std::string token;
  for (int page = 0; page < kKeyPagesMax; ++page) {
    const Result<HttpAnswer> answer =
        ask(door, "/v1/node-identities?page_size=1000" +
                      (token.empty() ? "" : "&page_token=" + url_encoded(token)));
    if (!answer.ok() || answer->status != 200) return {};
    const Result<Json> body = Json::parse(answer->body);
    if (!body.ok()) return {};
    for (const Json& node : (*body)["identities"].items()) {
      const Time renewed = instant(node["renewed_at"].text());
      nodes.push_back({.node = node["node_name"].text(),
                       .state = node["state"].text(),
                       .since = renewed.valid() ? renewed : instant(node["admitted_at"].text()),
                       .expires_at = instant(node["expires_at"].text())});
    }
    token = (*body)["next_page_token"].text();
    if (token.empty()) break;
  }
  return check_nodes(nodes, Time{int64_t{std::time(nullptr)} * 1'000'000'000});
}

Finding check_address(const Config& config) {
  if (api::is_loopback(config.api.address)) {
    return {.check = "address",
            .detail = "listens on " + config.api.address + ": reachable from this machine only"};
  }
  if (config.api.enable_tls && !config.api.grpc_tls) {
    return {
        .check = "address",
        .verdict = Verdict::kWarn,
        .detail = "listens on " + config.api.address +
                  " with TLS for HTTP and the metrics and without for gRPC: anyone who can alter traffic on "
                  "that network can speak to the agents once they have proved the token",
        .fix =
            "sed -i '/grpc_tls/d' /etc/gpu-scheduler/scheduler.yaml    # once every agent has a ca_file, "
            "see docs/operate/tls.md; then restart gpu-scheduler"};
  }
  if (config.api.enable_tls) {
    return {.check = "address", .detail = "listens on " + config.api.address + ", with TLS on every port"};
  }
  return {.check = "address",
          .verdict = Verdict::kWarn,
          .detail = "listens on " + config.api.address +
                    " without TLS: anyone who can capture traffic on that network can read the requests of "
                    "gpu-cli, including its token",
          .fix = "wg-quick up wg0    # a tunnel, or api.enable_tls, see docs/operate/tls.md"};
}

/// Needs no repair: it is so by default, and whoever runs the scheduler shall know it.
Finding check_anonymous(const Config& config) {
  Finding finding{.check = "anonymous"};
  if (answers_networks(config)) {
    std::string networks;
    for (const std::string& network : config.api.anonymous_networks)
      networks += (networks.empty() ? "" : ", ") + network;
    finding.detail = "callers without a credential are answered on " + config.api.address + " from " +
                     networks + " (api.anonymous_networks)" +
                     (config.api.anonymous_nodes ? ", from nodes there too (api.anonymous_nodes)"
                                                 : ", but not from addresses of nodes") +
                     ": " + anonymous_rights(config) + "; without api.anonymous_networks they are refused";
  } else if (!answers_anonymous(config)) {
    finding.detail = "callers without a credential are refused at every port, but for /health";
  } else {
    finding.detail = "callers without a credential are answered on " + config.api.address + ": " +
                     anonymous_rights(config) + "; api.token_required: true refuses them";
  }
  return finding;
}

/// Likewise.
Finding check_open_metrics(const Config& config) {
  return {.check = "metrics",
          .detail = "metrics.open is true: the metrics are read without a credential on " +
                    config.api.address + ":" + std::to_string(config.metrics.port)};
}

Finding check_certificate(const Config& config, const std::string& data_dir) {
  constexpr int64_t kSoon = int64_t{14} * 24 * 3'600;
  const sign::TlsFiles files = tls_files(config, data_dir);
  const std::string renew = wants_own_certificate(config)
                                ? "systemctl restart gpu-scheduler    # makes it anew"
                                : "openssl x509 -in " + ops::shell_quoted(files.certificate) +
                                      " -noout -subject -enddate    # to renew it: docs/operate/tls.md";
  const Result<std::shared_ptr<const sign::TlsIdentity>> identity = sign::TlsIdentity::load(files);
  if (!identity.ok()) {
    return {
        .check = "certificate", .verdict = Verdict::kFail, .detail = identity.error().message, .fix = renew};
  }
  const int64_t left = (*identity)->expires_at() - std::time(nullptr);
  const std::string detail = (*identity)->subject() + " is valid for " + std::to_string(left / 3'600 / 24) +
                             " more days, and the key in " + files.key + " is its key";
  if (left > kSoon) return {.check = "certificate", .detail = detail};
  return {.check = "certificate", .verdict = Verdict::kWarn, .detail = detail, .fix = renew};
}

Finding check_tokens(const Config& config) {
  Finding finding{.check = "tokens", .verdict = Verdict::kFail};
  finding.fix = "gpu-scheduler doctor    # after you corrected what is named; docs/operate/jwt.md";
  const Result<JwtSetup> setup = load_jwt(config);
  if (!setup.ok()) {
    finding.detail = setup.error().message;
    return finding;
  }
  const Result<JwtKeysPtr> keys = load_jwt_keys(setup->source);
  if (!keys.ok()) {
    finding.detail = keys.error().message;
    return finding;
  }
  return {.check = "tokens",
          .detail = "tokens of " + config.api.jwt_issuer + " are taken: " + std::to_string((*keys)->size()) +
                    " keys, " + std::to_string(setup->trust->rules.rules.size()) + " rules"};
}

}  // namespace

Diagnosis examine_scheduler(const Config& config, const std::string& data_dir) {
  const ops::Patient patient{.unit = "gpu-scheduler"};
  const Running running = running_scheduler(data_dir);
  Diagnosis diagnosis;
  diagnosis.add(ops::check_open_files(patient));
  diagnosis.add(ops::check_locked_memory(patient));
  diagnosis.add(ops::check_processes(patient));
  diagnosis.add(ops::check_folder(patient, data_dir, true));
  diagnosis.add_all(ops::check_disk(patient, data_dir));
  diagnosis.add(ops::check_volume(data_dir, limits::kVolumeBytesMin));
  diagnosis.add_all(ops::check_sync(data_dir));
  if (ops::exists(data_dir + "/token")) {
    diagnosis.add(ops::check_token(data_dir + "/token",
                                   "rm " + ops::shell_quoted(data_dir + "/token") +
                                       "    # the next start creates a new one; then join the nodes again"));
  }
  diagnosis.add(check_owner(data_dir, running));
  diagnosis.add(check_address(config));
  diagnosis.add(check_anonymous(config));
  if (config.metrics.enabled && config.metrics.open) diagnosis.add(check_open_metrics(config));
  if (config.api.enable_tls) diagnosis.add(check_certificate(config, data_dir));
  if (!config.api.jwt_issuer.empty()) diagnosis.add(check_tokens(config));
  if (config.history.enabled && !config.database.host.empty())
    diagnosis.add(check_database(postgres_server(config.database)));
  const auto port = [&](const char* key, int64_t number) {
    diagnosis.add(ops::check_port(patient, key, static_cast<uint16_t>(number), running.pid));
  };
  port("api.http_port", config.api.http_port);
  port("api.grpc_port", config.api.grpc_port);
  if (config.tasks.grpc_port != 0) port("tasks.grpc_port", config.tasks.grpc_port);
  if (config.tasks.http_port != 0) port("tasks.http_port", config.tasks.http_port);
  if (config.doors.allocation_port != 0) port("doors.allocation_port", config.doors.allocation_port);
  if (config.metrics.enabled) port("metrics.port", config.metrics.port);
  if (running.pid != 0) {
    const Finding health = check_health(config, running, data_dir);
    diagnosis.add(health);
    diagnosis.add(check_agent_socket(running));
    if (health.verdict != Verdict::kFail) {
      diagnosis.add_all(check_keys_of(config, running, data_dir));
      diagnosis.add_all(check_nodes_of(config, running, data_dir));
    }
  }
  diagnosis.add(ops::check_clock_synchronised());
  diagnosis.add(ops::check_unit(patient));
  return diagnosis;
}

namespace {

int diagnose(const std::string& config_path, const std::string& data_dir, bool json) {
  Diagnosis diagnosis;
  const Result<LoadedConfig> config =
      load_config({.path = config_path, .environment = process_environment(), .overrides = {}});
  if (config.ok()) {
    std::string detail = config_path.empty() ? "all keys have their defaults" : config_path + " is valid";
    const std::string without_effect = keys_without_effect(*config);
    if (!without_effect.empty()) detail += "; these keys have no effect: " + without_effect;
    diagnosis.add({.check = "config", .detail = detail});
    diagnosis.add_all(examine_scheduler(config->values, data_dir).findings());
  } else {
    diagnosis.add({.check = "config",
                   .verdict = Verdict::kFail,
                   .detail = config.error().message,
                   .fix = "gpu-scheduler --config " + ops::shell_quoted(config_path) + " --print-config"});
  }
  const std::string text = json ? diagnosis.json("gpu-scheduler", ops::host_name()) : diagnosis.text();
  std::fputs(text.c_str(), stdout);
  return diagnosis.exit_code();
}

ProgramAction define_doctor(Grammar& grammar) {
  struct Options {
    std::string config = ops::exists(kConfigDefault) ? kConfigDefault : "";
    std::string data_dir = kDataDirDefault;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  grammar
      .option("--config", "FILE", &options->config,
              "YAML configuration file (default: /etc/gpu-scheduler/scheduler.yaml if it exists)")
      .completes(Complete::kFile);
  grammar
      .option("--data-dir", "DIR", &options->data_dir,
              "Data folder of the scheduler (default: /var/lib/gpu-scheduler)")
      .completes(Complete::kFolder);
  grammar.flag("--json", options->json, "Print JSON");
  grammar.details("Exit status: 0 all checks pass, 1 warnings, 2 failures.");
  return [options](const std::vector<std::string>&) {
    return diagnose(options->config, options->data_dir, options->json);
  };
}

}  // namespace

ProgramCommand doctor_command() {
  return {.path = "doctor",
          .summary = "Check whether this machine can run a scheduler, and show how to correct what fails",
          .define = define_doctor};
}

}  // namespace gpusched
