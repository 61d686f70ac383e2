#include "node/agent/doctor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <optional>

#include "model/mig.h"
#include "node/container/container_probe.h"
#include "node/link/enroll.h"
#include "node/link/probe.h"
#include "node/link/scheduler_addresses.h"
#include "node/link/trust.h"
#include "node/process/hooks.h"
#include "ops/checks.h"
#include "ops/local_peer.h"
#include "ops/machine.h"
#include "ops/trusted_path.h"
#include "sign/node_certificate.h"

namespace gpusched {
namespace {

constexpr Duration kProbePatience = seconds(5);
constexpr int64_t kDay_s = 24 * 3'600;
constexpr const char* kJoinAgain =
    "gpu-agent join HOST --token-file TOKEN --ca FINGERPRINT --replace    # with a new node token, see "
    "docs/operate/nodes.md";

/// The finding about a node that joined with a node token.
Finding check_node_certificate(const std::string& path, const sign::NodeFile& file) {
  const int64_t now_s = std::time(nullptr);
  const int64_t days = (file.expires_at - now_s) / kDay_s;
  Finding finding{.check = "certificate",
                  .detail = path + " is valid for " + std::to_string(days) + " more days"};
  if (now_s >= file.expires_at) {
    finding.verdict = Verdict::kFail;
    finding.detail = path + " has expired: the scheduler lets this node in no more";
    finding.fix = kJoinAgain;
  } else if (now_s > file.renew_at() + (file.expires_at - file.begins_at) / 30) {
    finding.verdict = Verdict::kWarn;
    finding.detail += ", and should have been renewed by now, which a connected agent does by itself";
    finding.fix = "journalctl -u gpu-agent | grep certificate_not_renewed | tail -n 1";
  }
  return finding;
}

std::string copy_token_command(const AgentOptions& options) {
  const Result<Address> address = parse_address(options.scheduler.substr(0, options.scheduler.find(',')));
  const std::string host = address ? address->host : "SCHEDULER";
  const std::string path = options.token_file.empty() ? "/etc/gpu-scheduler/agent.token" : options.token_file;
  return "ssh root@" + host + " cat /var/lib/gpu-scheduler/token | install -m 0600 /dev/stdin " +
         ops::shell_quoted(path);
}

/// "0.3" of "0.3.1".
std::string series(const std::string& version) {
  const std::size_t first = version.find('.');
  return first == std::string::npos ? version : version.substr(0, version.find('.', first + 1));
}

Finding check_version(const AgentOptions& options, const SchedulerFacts& facts) {
  Finding finding{
      .check = "version",
      .detail = "agent " + options.version + ", scheduler " +
                (facts.version.empty() ? "of an older version that does not report itself" : facts.version)};
  if (!facts.version.empty() && series(facts.version) == series(options.version)) return finding;
  finding.verdict = Verdict::kWarn;
  finding.detail += "; they may be upgraded one after the other, but should not stay different";
  finding.fix = "gpu-agent --version; gpu-scheduler --version    # upgrade the older one; no job ends";
  return finding;
}

Finding check_agents_lock(const std::string& folder) {
  Finding finding{.check = "agent"};
  const std::string path = folder + "/agent.lock";
  const auto is_locked = [](const std::string& what) {
    const int file = ::open(what.c_str(), O_RDONLY | O_CLOEXEC);
    const bool held = file >= 0 && ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (file >= 0) ::close(file);
    return held;
  };
  const bool held = is_locked(folder) || is_locked(path);  // The file may have been removed.
  const std::string pid = ops::read_line(path).value_or("");
  if (held) {
    finding.detail = "process " + pid + " runs as the agent of " + folder;
  } else {
    finding.verdict = Verdict::kWarn;
    finding.detail = "no agent runs on " + folder;
    finding.fix = ops::exists("/run/systemd/system") ? "systemctl start gpu-agent"
                                                     : "gpu-agent --config /etc/gpu-scheduler/agent.yaml";
  }
  return finding;
}

/// The mode is the operator's; slices are the agent's.
std::vector<Finding> check_mig(const std::string& name, const DeviceFacts& facts,
                               const DeviceReading& reading) {
  std::vector<Finding> found;
  if (facts.mig_pending) {
    found.push_back(
        {.check = "mig",
         .verdict = Verdict::kWarn,
         .detail = name + ": its MIG mode is " + (facts.mig ? "on" : "off") +
                   " and changes at its next reset, which is delayed by the processes that have it open",
         .fix = "systemctl stop gpu-agent; nvidia-smi --gpu-reset -i " + facts.uuid +
                "; systemctl start gpu-agent"});
  }
  if (!facts.mig) return found;
  if (mig::table_of(facts.model, facts.memory_mb) == nullptr) {
    found.push_back(
        {.check = "mig",
         .verdict = Verdict::kWarn,
         .detail =
             name + ": it is in MIG mode, but the slices of this model are unknown; no job can run on it",
         .fix = "nvidia-smi -i " + facts.uuid + " -mig 0"});
    return found;
  }
  found.push_back({.check = "mig",
                   .detail = name + ": in MIG mode, with " + std::to_string(reading.slices.size()) +
                             " slices; jobs get only slices"});
  return found;
}

/// Programs that stay on the GPU by themselves; MPS enforces the limits of shares.
std::optional<Finding> check_strangers(const std::string& name, const DeviceReading& reading) {
  if (reading.daemons.empty()) return std::nullopt;
  std::string programs;
  for (const DaemonReading& daemon : reading.daemons)
    programs += (programs.empty() ? "" : ", ") + daemon.program;
  const bool mps = find_mps(reading) != nullptr;
  return Finding{.check = "gpu-daemons",
                 .detail = name + ": " + programs + " stay on it without delaying any job" +
                           (mps ? "; MPS enforces the limits of shares" : "")};
}

std::vector<Finding> check_gpus(const AgentOptions& options, const ops::Patient& patient) {
  if (!options.sim_gpus.empty())
    return {{.check = "gpus", .detail = "simulated: " + options.sim_gpus + "; jobs cannot compute on them"}};
  std::vector<Finding> found = ops::check_nvidia(patient, options.nvml_library);
  const Result<std::unique_ptr<GpuDriver>> driver =
      open_real_driver(options.nvml_library, options.nvidia_smi);
  if (!driver) {
    // No GPU at all is said by the check before.
    if (found.front().verdict == Verdict::kOk && driver.error().code == ErrorCode::kNotFound) return found;
    found.push_back({.check = "gpus",
                     .verdict = Verdict::kFail,
                     .detail = driver.error().message,
                     .fix = "nvidia-smi; dmesg | grep -i -e nvidia -e NVRM -e Xid | tail"});
    return found;
  }
  const std::size_t count = (*driver)->inventory().size();
  for (uint32_t index = 0; index < count; ++index) {
    const DeviceFacts& facts = (*driver)->inventory()[index];
    DeviceReading reading = (*driver)->read(index);
    set_daemons_apart(reading, options.gpu_daemons, [](int64_t pid) { return program_of_process(pid); });
    const std::string name = "GPU " + std::to_string(index) + " (" + facts.model + ", " + facts.uuid + ")";
    if (reading.condition != v1::DEVICE_CONDITION_OK) {
      found.push_back({.check = "gpus",
                       .verdict = Verdict::kFail,
                       .detail = name + ": " + reading.detail,
                       .fix = "nvidia-smi -i " + facts.uuid + " -q; dmesg | grep -e NVRM -e Xid | tail"});
    }
    for (Finding& finding : check_mig(name, facts, reading)) found.push_back(std::move(finding));
    if (std::optional<Finding> finding = check_strangers(name, reading)) found.push_back(std::move(*finding));
  }
  found.push_back({.check = "gpus", .detail = std::to_string(count) + " GPUs answer"});
  return found;
}

/// Settings that give away what keeps jobs from root, or from each other.
std::vector<Finding> check_boundaries(const AgentOptions& options, const std::string& config) {
  std::vector<Finding> found;
  const auto warn = [&found](const char* check, std::string detail, std::string fix) {
    found.push_back(
        {.check = check, .verdict = Verdict::kWarn, .detail = std::move(detail), .fix = std::move(fix)});
  };
  const bool is_root = geteuid() == 0;
  const BoxOptions& box = options.box;
  for (const std::string* hook :
       {&options.hooks.prolog, &options.hooks.epilog, &options.hooks.health_script}) {
    if (const std::string problem = untrusted_hook(*hook); !problem.empty()) {
      found.push_back(
          {.check = "hooks",
           .verdict = Verdict::kFail,
           .detail = problem,
           .fix = "ls -ld " + ops::shell_quoted(*hook) + "    # must be owned and writable by root only"});
    }
  }
  if (is_root && box.allow_root_jobs) {
    warn("root_jobs",
         "anyone who has the scheduler's token can run jobs as root here: allow_root_jobs is set",
         "sed -i '/allow_root_jobs/d' /etc/gpu-scheduler/agent.yaml    # then restart gpu-agent");
  }
  if (is_root && box.default_user == "nobody") {
    warn("default_user",
         "jobs that name no user run as nobody, which other programs use too: they can kill and read each "
         "other",
         "useradd --create-home gpu-jobs    # and default_user: gpu-jobs in agent.yaml");
  }
  if (box.allow_set_user_id) {
    warn("set_user_id",
         "set-user-id programs take effect in jobs: a vulnerability in one of them gives a job root access",
         "sed -i '/allow_set_user_id/d' /etc/gpu-scheduler/agent.yaml    # then restart gpu-agent");
  }
  if (is_root && !config.empty()) {
    if (const std::optional<std::string> problem = ops::changeable_by_others(config))
      warn("config_owner", "other users can change what this agent does as root: " + *problem,
           "ls -l " + ops::shell_quoted(config));
  }
  const bool has_containers = options.containers.runtime != "none" &&
                              (!ops::find_program("podman").empty() || !ops::find_program("docker").empty());
  if (is_root && has_containers && options.containers.network.empty()) {
    warn("container_network",
         "containers use the machine's network, as other jobs do, without an explicit setting: they can "
         "reach services on its loopback address. Gangs need the host network",
         "echo 'container_network: host' >> /etc/gpu-scheduler/agent.yaml    # or none, or one of the "
         "runtime's");
  }
  const Result<std::vector<SchedulerAddress>> addresses =
      parse_scheduler_addresses(options.scheduler, options.tls.on);
  for (const SchedulerAddress& scheduler : addresses ? *addresses : std::vector<SchedulerAddress>{}) {
    if (options.tls.on || scheduler.is_socket() || ops::is_loopback(scheduler.tcp.host)) continue;
    warn("network",
         std::string("this agent") + (is_root ? ", which runs as root," : "") +
             " carries out what comes from " + scheduler.tcp.host +
             " without TLS: anyone who can alter traffic on that network can give it orders once it has "
             "connected",
         "echo 'ca_file: /etc/gpu-scheduler/agent.ca.pem' >> /etc/gpu-scheduler/agent.yaml    # when the "
         "scheduler speaks TLS, see docs/operate/tls.md; then restart gpu-agent");
  }
  if (found.empty()) {
    found.push_back({.check = "boundaries",
                     .detail = "no setting weakens the separation of jobs from root and from each other"});
  }
  return found;
}

/// The findings are that no scheduler answers.
bool is_silent(const std::vector<Finding>& of_one) {
  return of_one.front().check == "scheduler" && of_one.front().verdict == Verdict::kFail;
}

}  // namespace

Finding check_containers(const ContainerOptions& options, const std::string& search_path) {
  Finding finding{.check = "containers"};
  if (options.runtime == "none") {
    finding.detail = "containers are switched off: container_runtime is none";
    return finding;
  }
  const ContainerSupport support = probe_containers(options, search_path);
  std::string broken;
  for (const std::string& why : support.broken) broken += (broken.empty() ? "" : "; ") + why;
  if (support.works) {
    finding.detail = support.client.program + " " + support.version + " answers";
    if (broken.empty()) return finding;
    finding.detail += "; " + broken;
  } else if (broken.empty()) {
    finding.detail =
        "podman, docker and apptainer are not installed; jobs with an image wait for other nodes";
    if (options.runtime != "auto")
      finding.detail = options.runtime + " is not installed; jobs with an image wait for other nodes";
    finding.fix = "apt-get install " + (options.runtime == "auto" ? std::string("podman") : options.runtime);
  } else {
    finding.detail = broken + "; jobs with an image wait for other nodes";
  }
  finding.verdict = Verdict::kWarn;
  if (broken.find("docker") != std::string::npos) {
    finding.fix = "systemctl start docker; docker info";
  } else if (!broken.empty()) {
    finding.fix = support.broken.front().substr(0, support.broken.front().find(' ')) + " info";
  }
  return finding;
}

std::vector<Finding> check_scheduler(const AgentOptions& options, const std::string& token) {
  const Result<SchedulerFacts> facts = probe_scheduler(options.scheduler, options.tls, token,
                                                       options.node_name, options.version, kProbePatience);
  if (!facts) {
    const Result<Address> address = parse_address(options.scheduler);
    const bool on_this_machine = is_unix_address(options.scheduler);
    return {{.check = "scheduler",
             .verdict = Verdict::kFail,
             .detail = facts.error().message,
             .fix = on_this_machine
                        ? "gpu-scheduler doctor    # or: gpu-agent join HOST:9090 --token-file TOKEN"
                    : address ? "nc -vz " + address->host + " " + std::to_string(address->port)
                              : ""}};
  }
  std::vector<Finding> found;
  found.push_back({.check = "scheduler",
                   .detail = "the scheduler answers at " + options.scheduler +
                             (options.tls.on ? " over TLS, with a certificate that is trusted here" : "")});
  if (is_unix_address(options.scheduler) && facts->knows_token) {
    found.push_back({.check = "proof",
                     .detail =
                         "the scheduler takes this agent without a token, for it runs as root or as the "
                         "scheduler's user"});
  } else if (!options.tls.identity.empty()) {
    found.push_back(
        facts->knows_token
            ? Finding{.check = "proof", .detail = "the scheduler takes this node's certificate"}
            : Finding{.check = "proof",
                      .verdict = Verdict::kFail,
                      .detail = "the scheduler refuses this node's certificate: " + facts->refusal,
                      .fix = kJoinAgain});
  } else if (!token.empty() && !facts->refusal.empty() &&
             facts->refusal.find("certificate") != std::string::npos) {
    found.push_back(
        {.check = "proof", .verdict = Verdict::kFail, .detail = facts->refusal, .fix = kJoinAgain});
  } else if (!token.empty() && !facts->knows_token) {
    found.push_back({.check = "proof",
                     .verdict = Verdict::kFail,
                     .detail = "the scheduler does not know this token",
                     .fix = copy_token_command(options)});
  } else if (!token.empty()) {
    found.push_back({.check = "proof", .detail = "the scheduler has the same token"});
  }
  found.push_back(check_version(options, *facts));
  if (facts->tells_time)
    found.push_back(ops::check_clock_skew(facts->clock_ahead, facts->uncertainty, "the scheduler"));
  return found;
}

std::vector<Finding> check_schedulers(const AgentOptions& options, const std::string& token) {
  const Result<std::vector<SchedulerAddress>> addresses =
      parse_scheduler_addresses(options.scheduler, options.tls.on);
  if (!addresses)
    return {{.check = "scheduler", .verdict = Verdict::kFail, .detail = addresses.error().message}};
  std::vector<Finding> found;
  AgentOptions asking = options;
  std::size_t silent = 0;
  for (const SchedulerAddress& scheduler : *addresses) {
    asking.scheduler = scheduler.text;
    const std::vector<Finding> of_one = check_scheduler(asking, token);
    if (is_silent(of_one)) ++silent;
    found.insert(found.end(), of_one.begin(), of_one.end());
  }
  if (silent == addresses->size()) return found;
  for (Finding& finding : found) {
    if (is_silent({finding})) finding.verdict = Verdict::kWarn;
  }
  return found;
}

Diagnosis examine_node(const AgentOptions& options, const std::string& config) {
  const ops::Patient patient{.unit = "gpu-agent", .runs_jobs = true};
  Diagnosis diagnosis;
  diagnosis.add(
      {.check = "config", .detail = config.empty() ? "from the command line" : config + " is valid"});
  diagnosis.add(ops::check_open_files(patient));
  diagnosis.add(ops::check_locked_memory(patient));
  diagnosis.add(ops::check_processes(patient));
  diagnosis.add_all(check_gpus(options, patient));
  diagnosis.add_all(ops::check_cgroups(patient));
  diagnosis.add(ops::check_user_switch(patient));
  diagnosis.add_all(check_boundaries(options, config));
  diagnosis.add(ops::check_shared_memory(patient));
  diagnosis.add(
      check_containers(options.containers, geteuid() == 0 ? kRootSearchPath : LaunchDefaults().path));
  diagnosis.add(ops::check_folder(patient, options.data_folder, false));
  if (geteuid() == 0) diagnosis.add(ops::check_way_to(options.data_folder));
  diagnosis.add_all(ops::check_disk(patient, options.data_folder));
  diagnosis.add_all(ops::check_sync(options.data_folder));
  diagnosis.add(ops::check_clock_synchronised());
  diagnosis.add(ops::check_unit(patient));
  diagnosis.add(check_agents_lock(options.data_folder));
  if (options.scheduler.empty()) {
    diagnosis.add({.check = "scheduler",
                   .verdict = Verdict::kFail,
                   .detail = "no scheduler is configured",
                   .fix = "gpu-agent join HOST:9090 --token-file TOKEN"});
    return diagnosis;
  }
  std::string token;
  if (!options.token_file.empty()) {
    diagnosis.add(ops::check_token(options.token_file, copy_token_command(options)));
    const Result<std::string> read = read_token(options.token_file);
    if (read) token = *read;
  }
  AgentOptions asking = options;
  const std::string certificate = node_file_of(options.data_folder);
  if (const Result<sign::NodeFile> file = sign::read_node_file(certificate)) {
    asking.tls.identity = certificate;
    diagnosis.add(check_node_certificate(certificate, *file));
  } else if (file.error().code != ErrorCode::kNotFound) {
    diagnosis.add({.check = "certificate",
                   .verdict = Verdict::kFail,
                   .detail = file.error().message,
                   .fix = kJoinAgain});
  }
  diagnosis.add_all(check_schedulers(asking, token));
  return diagnosis;
}

}  // namespace gpusched
