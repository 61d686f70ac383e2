#include "node/agent/join.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/limits.h"
#include "node/agent/agent_file.h"
#include "node/agent/doctor.h"
#include "node/link/enroll.h"
#include "node/link/scheduler_addresses.h"
#include "node/link/trust.h"
#include "node/process/user_directory.h"
#include "ops/checks.h"
#include "ops/local_peer.h"
#include "ops/machine.h"
#include "sign/api_key.h"

extern char** environ;

namespace gpusched {
namespace {

constexpr std::size_t kTokenBytesMin = 16;
constexpr std::size_t kTokenBytesMax = 4'096;
constexpr Duration kEnrollPatience = seconds(30);

struct JoinOptions {
  std::string scheduler;
  std::string token;
  std::string token_file;
  bool tls = false;
  std::string ca_file, ca;
  std::string node = ops::host_name();
  std::string config = "/etc/gpu-scheduler/agent.yaml";
  std::string data_dir = "/var/lib/gpu-agent";
  std::string sim_gpus;
  std::string default_user;
  bool allow_root_jobs = false;
  bool replace = false;
  bool no_start = false;
};

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-agent join: %s\n", message.c_str());
  return status;
}

void declare(Grammar& grammar, JoinOptions& options) {
  grammar.argument("HOST:PORT", &options.scheduler,
                   "gRPC address of the scheduler (default port: 9090); of several schedulers that are one, "
                   "all addresses, comma-separated");
  grammar
      .argument(
          "TOKEN", &options.token,
          "The scheduler's token; other users can see it in the process list, so prefer --token-file or "
          "standard input")
      .optional();
  grammar
      .option("--token-file", "FILE", &options.token_file,
              "File with a node token (gpu-scheduler node-token create), or with a copy of the scheduler's "
              "DATA_DIR/token; - for standard input")
      .completes(Complete::kFile);
  grammar.flag("--tls", options.tls,
               "Speak TLS and believe the machine's own authorities, unless --ca-file or --ca names another");
  grammar
      .option("--ca-file", "FILE", &options.ca_file,
              "File with the certificates (PEM) of the authorities that may sign the scheduler's; it is "
              "copied")
      .completes(Complete::kFile);
  grammar.option("--ca", "sha256:HEX", &options.ca,
                 "Fingerprint of the authority's certificate or of the scheduler's own");
  grammar.option("--node", "NAME", &options.node,
                 "Permanent name of this node (default: this machine's host name)");
  grammar
      .option("--config", "FILE", &options.config,
              "Configuration file to write (default: /etc/gpu-scheduler/agent.yaml)")
      .completes(Complete::kFile);
  grammar
      .option("--data-dir", "DIR", &options.data_dir,
              "Permanent data folder of the agent (default: /var/lib/gpu-agent)")
      .completes(Complete::kFolder);
  grammar.option("--sim-gpus", "GPUS", &options.sim_gpus, "Simulated GPUs, such as 4xA100-SXM4-80GB");
  grammar.option("--default-user", "USER", &options.default_user,
                 "User of jobs that name none, if the agent runs as root");
  grammar.flag("--allow-root-jobs", options.allow_root_jobs,
               "Also run jobs as root, if the agent runs as root");
  grammar.flag("--replace", options.replace, "Overwrite an existing configuration");
  grammar.flag("--no-start", options.no_start, "Only write the configuration");
}

Result<std::string> read_given_token(const JoinOptions& options) {
  if (options.token_file.empty()) return options.token;
  if (!options.token.empty()) return invalid_argument("give either TOKEN or --token-file");
  std::string text;
  if (options.token_file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  } else {
    const std::optional<std::string> read = ops::read_line(options.token_file);
    if (!read) return invalid_argument("cannot read " + options.token_file + ": " + std::strerror(errno));
    text = *read;
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

Result<Unit> check_given_token(const std::string& token) {
  if (token.empty()) return Unit{};
  const bool plain =
      token.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@%,~!#$^&*()") ==
      std::string::npos;
  if (token.size() >= kTokenBytesMin && token.size() <= kTokenBytesMax && plain) return Unit{};
  return invalid_argument(
      "this is not a token: a token has at least 16 printable characters; it is the content of the "
      "scheduler's DATA_DIR/token");
}

/// A double-quoted YAML scalar; names and paths of the command line may hold anything.
std::string yaml_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string token_path(const JoinOptions& options) {
  return (std::filesystem::path(options.config).parent_path() / "agent.token").string();
}

std::string authority_path(const JoinOptions& options) {
  return (std::filesystem::path(options.config).parent_path() / "agent.ca.pem").string();
}

std::string config_text(const JoinOptions& options, bool with_token) {
  std::string text =
      "# Written by gpu-agent join; the keys are the options of gpu-agent, with '_' for '-'.\n"
      "scheduler: " +
      yaml_quoted(options.scheduler) + "\nnode: " + yaml_quoted(options.node) +
      "\ndata_dir: " + yaml_quoted(options.data_dir) + "\n";
  if (with_token) text += "token_file: " + yaml_quoted(token_path(options)) + "\n";
  if (!options.ca.empty()) text += "ca: " + yaml_quoted(options.ca) + "\n";
  if (!options.ca_file.empty()) text += "ca_file: " + yaml_quoted(authority_path(options)) + "\n";
  if (options.tls && options.ca.empty() && options.ca_file.empty()) text += "tls: true\n";
  if (!options.sim_gpus.empty()) text += "sim_gpus: " + yaml_quoted(options.sim_gpus) + "\n";
  if (!options.default_user.empty()) text += "default_user: " + yaml_quoted(options.default_user) + "\n";
  if (options.allow_root_jobs) text += "allow_root_jobs: true\n";
  return text;
}

/// Refuses to make another node out of this one unless told to.
Result<Unit> check_old_config(const JoinOptions& options, const std::string& text) {
  const std::optional<std::string> old_text = ops::read_text(options.config);
  if (!old_text || options.replace || *old_text == text) return Unit{};
  const Result<std::vector<AgentSetting>> old_settings = read_agent_file(options.config);
  std::string says = "other settings";
  if (old_settings) {
    for (const AgentSetting& setting : *old_settings) {
      if (setting.name == "scheduler" && !setting.values.empty())
        says = "scheduler " + setting.values.front();
    }
  }
  return Error{.code = ErrorCode::kAlreadyExists,
               .message = options.config + " already exists, with " + says +
                          "; edit it, or give --replace to overwrite it"};
}

Result<Unit> make_folders(const JoinOptions& options) {
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(options.config).parent_path();
  for (const std::filesystem::path& path : {folder, std::filesystem::path(options.data_dir)}) {
    std::filesystem::create_directories(path, failed);
    if (failed) {
      return Error{.code = ErrorCode::kIo,
                   .message = "cannot make " + path.string() + ": " + failed.message() +
                              "; run this as the user that the agent runs as, usually root"};
    }
  }
  return Unit{};
}

/// Exchanges a node token for node.pem, without which nothing else is written.
Result<Unit> become_node(const JoinOptions& options, const LinkTls& tls, const std::string& token,
                         const char* version) {
  if (const Result<Unit> free = check_old_config(options, config_text(options, false)); !free) return free;
  if (const Result<Unit> made = make_folders(options); !made) return made;
  const Result<std::vector<SchedulerAddress>> addresses =
      parse_scheduler_addresses(options.scheduler, tls.on);
  if (!addresses) return addresses.error();
  Result<Unit> joined = Unit{};
  for (const SchedulerAddress& scheduler : *addresses) {
    joined = enroll(scheduler.text, tls, token, options.node, version, options.data_dir, kEnrollPatience);
    if (joined || joined.error().code != ErrorCode::kUnavailable) break;  // The token is the same at all.
  }
  return joined;
}

/// `authority`: what stands in --ca-file, which may be one of a visit; empty: none was given.
Result<Unit> write_all(const JoinOptions& options, const std::string& token, const std::string& authority) {
  const std::string text = config_text(options, !token.empty());
  if (const Result<Unit> free = check_old_config(options, text); !free) return free;
  if (const Result<Unit> made = make_folders(options); !made) return made;
  if (!token.empty()) {
    if (const Result<Unit> written = write_private(token_path(options), token + "\n"); !written)
      return written;
  }
  if (!authority.empty()) {
    if (const Result<Unit> written = write_private(authority_path(options), authority); !written)
      return written;
  }
  return write_private(options.config, text);
}

int run_program(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  if (::posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return 127;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// The text of --ca-file, if it was given and holds certificates.
Result<std::string> read_authority(const LinkTls& tls) {
  if (tls.ca_file.empty()) return std::string();
  if (const auto trust = tls.trust(); !trust) return invalid_argument("--ca-file: " + trust.error().message);
  const std::optional<std::string> text = ops::read_text(tls.ca_file);
  if (!text) return invalid_argument("cannot read " + tls.ca_file + ": " + std::strerror(errno));
  return *text;
}

/// Starts the unit, or says how the agent is started.
int start(const JoinOptions& options) {
  const bool own_unit = options.config == JoinOptions{}.config;
  const bool managed =
      ops::exists("/run/systemd/system") && own_unit && ::geteuid() == 0 &&
      ops::check_unit({.unit = "gpu-agent", .runs_jobs = true}).detail.find(" is not installed") ==
          std::string::npos;
  if (options.no_start || !managed) {
    const std::string by_hand = "gpu-agent --config " + ops::shell_quoted(options.config);
    std::printf("start the agent:\n  %s\n", managed ? "systemctl enable --now gpu-agent" : by_hand.c_str());
    return 0;
  }
  if (run_program({"systemctl", "enable", "gpu-agent"}) != 0 ||
      run_program({"systemctl", "restart", "gpu-agent"}) != 0) {
    return complain("the unit did not start; see: journalctl -u gpu-agent -n 50", 1);
  }
  std::printf("gpu-agent is running; list it with: gpu-cli nodes\n");
  return 0;
}

/// Prints what the scheduler's probe found; false when something fails.
bool probe(const JoinOptions& options, const LinkTls& tls, const std::string& token, const char* version) {
  AgentOptions agent;
  agent.scheduler = options.scheduler;
  agent.node_name = options.node;
  agent.version = version;
  agent.tls = tls;
  bool well = true;
  for (const Finding& finding : check_schedulers(agent, token)) {
    std::printf("%-5s %s\n", std::string(to_string(finding.verdict)).c_str(), finding.detail.c_str());
    if (finding.verdict == Verdict::kOk) continue;
    if (!finding.fix.empty()) std::printf("      fix: %s\n", finding.fix.c_str());
    well = well && finding.verdict != Verdict::kFail;
  }
  std::fflush(stdout);
  return well;
}

/// Checks the user, so that the first job is not who finds a slip of the hand.
Result<Unit> check_default_user(const JoinOptions& options) {
  if (options.default_user.empty()) return Unit{};
  const Result<UserFacts> user = UserDirectory::look_up_user(options.default_user);
  if (!user) {
    return invalid_argument("--default-user: there is no user '" + options.default_user +
                            "' on this machine; create it, or give one of those that `getent passwd` lists");
  }
  if (user->credentials.uid == 0 && !options.allow_root_jobs)
    return invalid_argument("--default-user: " + options.default_user +
                            " is root, which needs --allow-root-jobs");
  return Unit{};
}

/// Gives each address of the list that is a name alone the usual port.
std::string with_ports(const std::string& list) {
  std::string out;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string one = list.substr(begin, end - begin);
    out += (begin == 0 ? "" : ",") + one + (one.find(':') == std::string::npos ? ":9090" : "");
    begin = end + 1;
  }
  return out;
}

Result<Unit> check_arguments(const JoinOptions& options, const std::string& token, bool has_tls) {
  const Result<std::vector<SchedulerAddress>> addresses =
      parse_scheduler_addresses(options.scheduler, has_tls);
  if (!addresses) return addresses.error();
  if (options.node.empty() || options.node.size() > limits::kNameBytesMax)
    return invalid_argument("--node: the name must have 1 to 253 bytes");
  if (!options.config.starts_with('/') || !options.data_dir.starts_with('/'))
    return invalid_argument(
        "--config and --data-dir must be absolute paths, because the agent may start in any folder");
  if (const Result<Unit> known = check_default_user(options); !known) return known;
  if (const Result<Unit> checked = check_given_token(token); !checked) return checked;
  if (sign::parse_node_token(token) && !has_tls) {
    return invalid_argument(
        "a node token is sent over TLS only; give --ca with the fingerprint of the scheduler's authority "
        "(its "
        "DATA_DIR/ca/fingerprint), or --ca-file");
  }
  for (const auto& [text, address] : *addresses) {
    if (const Result<Address> tcp = parse_address(text); !tcp) return tcp.error();
    const bool here = ops::is_loopback(address.host);
    const Result<Unit> trusted =
        check_trust(address, !token.empty(), ::geteuid(),
                    here ? ops::listening_users(address.host, address.port) : std::vector<uid_t>{});
    if (!trusted) return trusted;
  }
  return Unit{};
}

int join(JoinOptions& options, const char* version) {
  const Result<std::string> token = read_given_token(options);
  if (!token) return complain(token.error().message, 2);
  const Result<LinkTls> tls = link_tls_of(options.tls, options.ca_file, options.ca);
  if (!tls) return complain(tls.error().message, 2);
  const Result<std::string> authority = read_authority(*tls);
  if (!authority) return complain(authority.error().message, 2);
  options.scheduler = with_ports(options.scheduler);
  if (const Result<Unit> checked = check_arguments(options, *token, tls->on); !checked)
    return complain(checked.error().message, checked.error().code == ErrorCode::kInvalidArgument ? 2 : 1);
  // A node token is used up here, and is no secret of the agent's.
  const bool once = sign::parse_node_token(*token).has_value();
  const std::string shared = once ? std::string() : *token;
  if (!probe(options, *tls, shared, version))
    return complain("nothing was written; correct what failed and run this again", 1);
  if (once) {
    if (const Result<Unit> joined = become_node(options, *tls, *token, version); !joined)
      return complain(joined.error().message, 1);
    std::printf("ok    this machine is the node %s, by the certificate in %s\n", options.node.c_str(),
                node_file_of(options.data_dir).c_str());
  }
  if (const Result<Unit> written = write_all(options, shared, *authority); !written)
    return complain(written.error().message, 1);
  std::printf("wrote %s%s; data in %s\n", options.config.c_str(),
              shared.empty() ? "" : (" and " + token_path(options)).c_str(), options.data_dir.c_str());
  return start(options);
}

}  // namespace

ProgramCommand join_command(std::string version, std::function<void(const std::string& secret)> hide) {
  const auto define = [version = std::move(version),
                       hide = std::move(hide)](Grammar& grammar) -> ProgramAction {
    const auto options = std::make_shared<JoinOptions>();
    declare(grammar, *options);
    grammar.details(
        "Looks whether this machine can be a node of that scheduler, writes the agent's configuration, token "
        "and data folder, and starts its unit where systemd runs.");
    return [options, version, hide](const std::vector<std::string>&) {
      if (!options->token.empty()) hide(options->token);
      return join(*options, version.c_str());
    };
  };
  return {.path = "join", .summary = "Make this machine a node of a scheduler", .define = define};
}

}  // namespace gpusched
