#include "node/agent/agent.h"

#include <pwd.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/errors.h"
#include "log/log.h"
#include "node/gpu/inventory.h"
#include "node/gpu/slice_keeper.h"
#include "node/process/process_reader.h"
#include "ops/local_peer.h"
#include "sign/keys/token_proof.h"
#include "sign/node_certificate.h"

namespace gpusched {
namespace {

constexpr const char* kMissingWords =
    "the driver has not listed it since gpu-agent started; restart gpu-agent once it is back";

std::string folder_of_this_program() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

uint64_t draw_process_number() {
  uint64_t number = 0;
  std::memcpy(&number, sign::make_nonce().data(), sizeof number);
  return number;
}

LaunchDefaults launch_defaults(const AgentOptions& options) {
  LaunchDefaults defaults;
  defaults.grace = options.grace;
  defaults.node = options.node_name;
  defaults.ports = options.service_ports;
  if (const passwd* user = getpwuid(geteuid())) {
    defaults.user = user->pw_name;
    defaults.home = user->pw_dir;
  }
  if (geteuid() == 0) defaults.path = kRootSearchPath;
  return defaults;
}

}  // namespace

Result<std::unique_ptr<Agent>> Agent::open(AgentOptions options) {
  std::unique_ptr<Agent> agent(new Agent(std::move(options)));
  if (const Result<Unit> prepared = agent->prepare(); !prepared) return prepared.error();
  return agent;
}

Agent::Agent(AgentOptions options) : options_(std::move(options)) {}

Agent::~Agent() {
  if (link_ != nullptr) link_->disconnect();
  for (const int descriptor : {epoll_, stop_event_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

Result<Unit> Agent::prepare() {
  if (const Result<Unit> named = read_addresses(); !named) return named;
  if (!options_.token_file.empty()) {
    const Result<std::string> token = read_token(options_.token_file);
    if (!token) return token.error();
    token_ = *token;
  }
  if (const Result<Unit> found = find_certificate(); !found) return found;
  for (const SchedulerAddress& scheduler : schedulers_->all()) {
    if (const Result<Unit> trusted = check_scheduler(scheduler); !trusted) return trusted;
  }
  if (options_.tls.on) {
    // Read again at each connection; what is wrong with it is said now.
    if (const auto trust = options_.tls.trust(); !trust) return trust.error();
  }

  std::error_code error;
  std::filesystem::create_directories(options_.data_folder, error);
  if (error) {
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot make " + options_.data_folder + ": " + error.message()};
  }
  options_.data_folder = std::filesystem::canonical(options_.data_folder, error).string();
  Result<FolderLock> lock = FolderLock::take(options_.data_folder);
  if (!lock) return lock.error();
  lock_.emplace(std::move(*lock));
  Result<FolderIdentity> identity = take_folder(options_.data_folder, options_.node_name, machine_name());
  if (!identity) return identity.error();
  identity_ = std::move(*identity);
  tell_mark(options_.data_folder, identity_.instance);
  Result<TermFence> fence = TermFence::open(options_.data_folder);
  if (!fence) return fence.error();
  fence_.emplace(std::move(*fence));

  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || stop_event_ < 0) return io_error("cannot create an event loop");
  Result<std::unique_ptr<AttemptLog>> log = AttemptLog::open(options_.data_folder);
  if (!log) return log.error();
  log_ = std::move(*log);
  if (const Result<Unit> opened = open_driver(); !opened) return opened;
  if (const Result<Unit> opened = open_core(); !opened) return opened;
  return open_metrics();
}

/// Finds the certificate of a node that joined with a node token, which never goes back to less.
Result<Unit> Agent::find_certificate() {
  const std::string path = node_file_of(options_.data_folder);
  const Result<sign::NodeFile> file = sign::read_node_file(path);
  if (!file && file.error().code == ErrorCode::kNotFound) return Unit{};
  if (!file) return file.error();
  if (!options_.tls.on) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "this node has a certificate (" + path +
                            "), which it shows over TLS, and --ca, --ca-file or --tls is missing"};
  }
  options_.tls.identity = path;
  renewal_.emplace(path);
  return Unit{};
}

/// On an address that others reach only for those who have the shared token.
Result<Unit> Agent::open_metrics() {
  if (!options_.metrics) return Unit{};
  if (!ops::is_loopback(options_.metrics->address)) {
    if (token_.empty()) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "--metrics-address " + options_.metrics->address +
                              " can be reached by other machines, and there is no token to require; give "
                              "--token-file, or use 127.0.0.1"};
    }
    options_.metrics->token = token_;
  }
  AgentFigures known{.node_name = options_.node_name, .version = options_.version};
  for (const DeviceFacts& device : devices_)
    known.devices.push_back({.uuid = device.uuid, .model = device.model});
  Result<std::unique_ptr<AgentMetrics>> opened = AgentMetrics::open(*options_.metrics, std::move(known));
  if (!opened) return opened.error();
  metrics_ = std::move(*opened);
  log_event(LogLevel::kInfo, "agent", "metrics_served", {},
            {{"address", options_.metrics->address}, {"port", metrics_->port()}});
  return Unit{};
}

/// The listener of a Unix socket is looked at by each connection.
Result<Unit> Agent::check_scheduler(const SchedulerAddress& scheduler) const {
  if (scheduler.is_socket()) return Unit{};
  const bool on_this_machine = ops::is_loopback(scheduler.tcp.host);
  // A scheduler that TLS has verified is the one that this node joined.
  return check_trust(
      scheduler.tcp, !token_.empty() || renewal_.has_value(), geteuid(),
      on_this_machine ? ops::listening_users(scheduler.tcp.host, scheduler.tcp.port) : std::vector<uid_t>{});
}

Result<Unit> Agent::read_addresses() {
  Result<std::vector<SchedulerAddress>> found =
      parse_scheduler_addresses(options_.scheduler, options_.tls.on);
  if (!found) return found.error();
  schedulers_.emplace(std::move(*found), static_cast<uint64_t>(clock_.wall().ns));
  return Unit{};
}

/// Finds the token of a scheduler on this machine, where this user may read it.
std::function<std::string(const std::string&, const std::string&)> Agent::local_token_finder() const {
  if (renewal_) return nullptr;
  return [](const std::string& scheduler, const std::string& path) {
    const Result<Address> address = parse_address(scheduler);
    if (!address || !ops::is_loopback(address->host)) return std::string();
    Result<std::string> token = ops::read_local_token(path, address->host, address->port, "grpc");
    if (token) return std::move(*token);
    log_event(LogLevel::kInfo, "agent", "token_not_found", {}, {{"why", token.error().message}});
    return std::string();
  };
}

Result<Unit> Agent::open_driver() {
  Result<std::unique_ptr<GpuDriver>> driver =
      options_.sim_gpus.empty()
          ? open_real_driver(options_.nvml_library, options_.nvidia_smi)
          : open_sim_driver(options_.sim_gpus, options_.node_name, options_.data_folder + "/sim-gpus.json",
                            options_.sim_links);
  if (driver) {
    if (const Result<Unit> settled = settle_devices(std::move(*driver)); !settled) return settled;
  } else if (driver.error().code == ErrorCode::kInvalidArgument) {
    return driver.error();
  } else if (const Result<Unit> remembered = remember_devices(driver.error()); !remembered) {
    return remembered;
  }
  for (std::size_t index = 0; index < devices_.size(); ++index) {
    log_event(LogLevel::kInfo, "agent", "gpu_detected", {},
              {{"index", index},
               {"uuid", devices_[index].uuid},
               {"model", devices_[index].model},
               {"memory_mb", devices_[index].memory_mb},
               {"mig", devices_[index].mig},
               {"driver", driver_->name()}});
    if (!devices_[index].mig_pending) continue;
    log_event(LogLevel::kWarning, "agent", "mig_mode_pending", {},
              {{"uuid", devices_[index].uuid},
               {"mig", devices_[index].mig},
               {"fix", "reset the GPU once nothing uses it, then restart gpu-agent"}});
  }
  return Unit{};
}

/// Devices keep the numbers that they had, and one that is lost keeps its place.
Result<Unit> Agent::settle_devices(std::shared_ptr<GpuDriver> driver) {
  const bool simulated = !options_.sim_gpus.empty();
  Result<std::vector<KnownDevice>> before = load_inventory(options_.data_folder);
  if (!before) return before.error();
  std::erase_if(*before, [simulated](const KnownDevice& device) {
    return device.facts.uuid.starts_with(kSimUuidMark) != simulated;
  });
  std::set<std::string> held;
  for (const auto& [key, attempt] : log_->image().attempts) {
    if (!attempt.closed) held.insert(attempt.device_uuids.begin(), attempt.device_uuids.end());
  }
  const std::vector<KnownDevice> slots = settle_inventory(*before, driver->inventory(), held, read_boot_id());
  for (const KnownDevice& slot : slots) {
    if (slot.missing_since.empty()) continue;
    log_event(LogLevel::kError, "agent", "gpu_missing", {},
              {{"uuid", slot.facts.uuid}, {"model", slot.facts.model}, {"why", kMissingWords}});
  }
  driver_ = make_slot_driver(std::move(driver), slots, kMissingWords);
  devices_ = driver_->inventory();
  // On a full disk the last one stays as it was: that is enough to keep everything in its place.
  const Result<Unit> kept = keep_inventory(options_.data_folder, slots);
  if (!kept && kept.error().code != ErrorCode::kStorageFull) return kept;
  return Unit{};
}

/// Makes the driver one that knows which MIG slices are ours: by its notes, and by attempts that have some.
void Agent::keep_slices() {
  const bool mig =
      std::any_of(devices_.begin(), devices_.end(), [](const DeviceFacts& device) { return device.mig; });
  if (!mig) return;
  auto keeper = std::make_shared<SliceKeeper>(driver_, options_.data_folder, read_boot_id());
  if (log_->image().boot_id == read_boot_id()) {
    for (const auto& [key, attempt] : log_->image().attempts) {
      if (attempt.closed || attempt.of_earlier_boot) continue;
      for (std::size_t i = 0; i < attempt.devices.size(); ++i) {
        const HeldDevice& device = attempt.devices[i];
        if (!device.is_slice()) continue;
        uint32_t index = device.index;
        for (uint32_t at = 0; i < attempt.device_uuids.size() && at < devices_.size(); ++at) {
          if (devices_[at].uuid == attempt.device_uuids[i]) index = at;
        }
        keeper->claim(index, device.mig_profile, device.mig_start);
      }
    }
  }
  driver_ = std::move(keeper);
}

Result<Unit> Agent::remember_devices(const Error& trouble) {
  Result<std::vector<KnownDevice>> before = load_inventory(options_.data_folder);
  if (!before) return before.error();
  if (before->empty() && trouble.code != ErrorCode::kNotFound) return trouble;
  if (before->empty()) {
    log_event(LogLevel::kWarning, "agent", "no_gpus", {}, {{"why", trouble.message}});
    return Unit{};
  }
  driver_fault_ = "the GPU driver does not respond (" + trouble.message + "), and this node had " +
                  std::to_string(before->size()) +
                  " GPUs; repair the driver (after an upgrade often by a reboot), then restart gpu-agent. If "
                  "the GPUs were removed for good: delete " +
                  options_.data_folder + "/inventory";
  log_event(LogLevel::kError, "agent", "driver_lost", {}, {{"why", driver_fault_}});
  driver_ = make_slot_driver(nullptr, *before, "the driver does not respond: " + trouble.message);
  devices_ = driver_->inventory();
  return Unit{};
}

/// Asks the container runtimes whether they work: some tenths of a second where there is one.
void Agent::find_containers(const std::string& mark, const std::string& shim_program) {
  const LaunchDefaults defaults = launch_defaults({});
  auto node = std::make_shared<ContainerNode>();
  node->options = options_.containers;
  node->support = probe_containers(options_.containers, defaults.path);
  node->data_folder = options_.data_folder;
  node->instance = mark;
  node->shim_program = shim_program;
  node->memory_mb = total_memory_mb();
  if (node->support.works) {
    log_event(
        LogLevel::kInfo, "agent", "containers_ready", {},
        {{"runtime", shim::to_string(node->support.client.runtime)}, {"version", node->support.version}});
  } else {
    log_event(LogLevel::kInfo, "agent", "no_containers", {}, {{"why", node->support.why_not}});
  }
  container_sweep_ = std::make_unique<ContainerSweep>(*node);
  containers_ = std::move(node);
}

/// Shims of this boot of the machine: a later one gives the same numbers to others.
std::map<AttemptKey, ShimProcess> Agent::recorded_shims() const {
  std::map<AttemptKey, ShimProcess> shims;
  if (log_->image().boot_id != read_boot_id()) return shims;
  for (const auto& [key, attempt] : log_->image().attempts) {
    if (attempt.shim.pid != 0 && !attempt.of_earlier_boot) shims[key] = attempt.shim;
  }
  return shims;
}

/// They would run beside those that this one runs again.
void Agent::end_hooks_of_earlier_agents() const {
  if (options_.hooks.prolog.empty() && options_.hooks.epilog.empty() && options_.hooks.health_script.empty())
    return;
  for (const pid_t pid : ProcessReader().processes_with_environment(std::string(kHookMark) +
                                                                    mark_of_instance(identity_.instance))) {
    log_event(LogLevel::kWarning, "agent", "hook_ended", {}, {{"pid", static_cast<int64_t>(pid)}});
    kill(pid, SIGKILL);
  }
}

void Agent::open_link() {
  link_ = std::make_unique<GrpcLink>(GrpcLinkOptions{.token = token_,
                                                     .find_token = local_token_finder(),
                                                     .node_name = options_.node_name,
                                                     .version = options_.version,
                                                     .tls = options_.tls});
}

/// Tasks of persistent workers are looked for first; everything comes to be by shims, which note ports.
Result<Unit> Agent::open_spawner(const std::string& mark, const std::string& shim_program) {
  workers_ = std::make_unique<WorkerSpawner>(
      WorkerSpawnerOptions{.data_folder = options_.data_folder,
                           .spares = spares_.get(),
                           .remove = [this](const AttemptKey& key) { files_->remove(key); }},
      clock_, static_cast<ShimListener&>(*this));
  Result<std::unique_ptr<ShimSpawner>> spawner =
      ShimSpawner::open({.shim_program = shim_program,
                         .data_folder = options_.data_folder,
                         .instance = mark,
                         .spares = spares_.get(),
                         .cgroups = &boxes_->cgroups(),
                         .remove_scratch = [this](const AttemptKey& key) { files_->remove_scratch(key); },
                         .log_bytes_max = options_.log_bytes_max,
                         .shims = recorded_shims()},
                        clock_, *workers_);
  if (!spawner) return spawner.error();
  spawner_ = std::move(*spawner);
  workers_->begin(*spawner_);
  endpoints_ = std::make_unique<EndpointWatch>(options_.data_folder, clock_);
  return Unit{};
}

Result<Unit> Agent::open_core() {
  const std::string mark = mark_of_instance(identity_.instance);
  keep_slices();
  monitor_ = make_device_monitor(driver_, options_.gpu_daemons);
  if (const Result<Unit> made = make_attempts_folder(options_.data_folder); !made) return made;
  const int64_t cpus = options_.cpus > 0 ? options_.cpus : usable_cpus();
  const int64_t memory_mb = options_.memory_mb > 0 ? options_.memory_mb : total_memory_mb();
  Result<std::unique_ptr<BoxPlanner>> boxes = BoxPlanner::open(options_.box,
                                                               {.data_folder = options_.data_folder,
                                                                .instance = mark,
                                                                .devices = devices_,
                                                                .simulated_gpus = !options_.sim_gpus.empty(),
                                                                .cpus_offered = cpus,
                                                                .memory_mb_offered = memory_mb,
                                                                .memory_mb_total = total_memory_mb()},
                                                               clock_);
  if (!boxes) return boxes.error();
  boxes_ = std::move(*boxes);
  spares_ = std::make_unique<SpareFolders>(options_.data_folder);
  files_ = std::make_unique<FolderFiles>(FolderFilesOptions{.data_folder = options_.data_folder,
                                                            .spares = spares_.get(),
                                                            .log_bytes_max = options_.all_logs_bytes_max,
                                                            .logs_kept = options_.logs_kept,
                                                            .finished_kept = options_.finished_kept});
  files_->remove_unknown(log_->image().attempts);
  const std::string shim =
      options_.shim_program.empty() ? folder_of_this_program() + "/gpu-shim" : options_.shim_program;
  find_containers(mark, shim);
  if (const Result<Unit> opened = open_spawner(mark, shim); !opened) return opened;
  open_link();
  std::vector<std::string> uuids;
  for (const DeviceFacts& device : devices_) uuids.push_back(device.uuid);
  end_hooks_of_earlier_agents();
  hooks_ = std::make_unique<ScriptHooks>(
      options_.hooks, ScriptHooks::Facts{.node_name = options_.node_name,
                                         .data_folder = options_.data_folder,
                                         .device_uuids = std::move(uuids),
                                         .fault = [fault = driver_fault_] { return fault; },
                                         .instance = mark});
  sessions_ = std::make_unique<Sessions>(
      SessionsOptions{.shim_program = shim, .data_folder = options_.data_folder, .instance = mark}, clock_,
      *link_);
  NodeOptions node{.node_name = options_.node_name,
                   .instance = identity_.instance,
                   .mark = mark,
                   .boot_id = read_boot_id(),
                   .version = options_.version,
                   .machine = identity_.machine,
                   .process = draw_process_number(),
                   .cluster = identity_.cluster,
                   .cpu_milli = cpus * 1'000,
                   .memory_mb = memory_mb,
                   .labels = options_.labels,
                   .address = options_.address,
                   .devices = devices_,
                   .topology = driver_ != nullptr ? driver_->topology() : DeviceTopology{},
                   .launch = launch_defaults(options_),
                   .finished_kept = options_.finished_kept,
                   .features = features(),
                   .check_every = options_.hooks.check_every,
                   .check_patience = options_.hooks.timeout + seconds(10),
                   .clock_skew_max = options_.hooks.clock_skew_max,
                   .order_patience = options_.order_patience,
                   .faults = options_.gpu_faults,
                   .share_memory_grace = options_.share_memory_grace};
  node.launch.containers = containers_;
  fault_file_ = std::make_unique<FaultFile>(options_.data_folder);
  core_ = std::make_unique<NodeCore>(std::move(node),
                                     NodePorts{.clock = clock_,
                                               .link = *link_,
                                               .spawner = *workers_,
                                               .store = *log_,
                                               .files = *files_,
                                               .devices = *monitor_,
                                               .host = meter_,
                                               .hooks = hooks_.get(),
                                               .boxes = boxes_.get(),
                                               .sessions = sessions_.get(),
                                               .memory = fault_file_.get(),
                                               .slices = monitor_.get(),
                                               .endpoints = endpoints_.get()},
                                     StoreImage(log_->image()));
  for (const int source :
       {link_->event(), workers_->descriptor(), sessions_->descriptor(), log_->synced_event(),
        monitor_->finished_event(), hooks_->finished_event(), files_->chunks_event(), stop_event_}) {
    if (source >= 0) add_source(source);
  }
  open_kernel_log();
  core_->settle();
  log_event(LogLevel::kInfo, "agent", "agent_started", {},
            {{"node", options_.node_name},
             {"scheduler", options_.scheduler},
             {"version", options_.version},
             {"gpus", devices_.size()},
             {"running", core_->running_count()}});
  return Unit{};
}

/// A driver that tells Xids itself would tell them twice.
void Agent::open_kernel_log() {
  if (options_.kernel_log.empty() || driver_ == nullptr || driver_->tells_xids()) return;
  Result<KernelLog> log = KernelLog::open(options_.kernel_log, core_->log_position());
  if (!log) {
    log_event(LogLevel::kInfo, "agent", "no_kernel_log", {}, {{"why", log.error().message}});
    return;
  }
  kernel_log_ = std::make_unique<KernelLog>(std::move(*log));
  read_kernel_log(clock_.monotonic());
}

}  // namespace gpusched
