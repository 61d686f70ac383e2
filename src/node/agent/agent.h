#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "node/agent/agent_metrics.h"
#include "node/agent/folder_identity.h"
#include "node/agent/machine.h"
#include "node/agent/term_fence.h"
#include "node/container/container_sweep.h"
#include "node/core/node_core.h"
#include "node/endpoints/endpoint_watch.h"
#include "node/gpu/gpu_driver.h"
#include "node/gpu/kernel_log.h"
#include "node/link/enroll.h"
#include "node/link/grpc_link.h"
#include "node/link/scheduler_addresses.h"
#include "node/link/trust.h"
#include "node/output/attempt_log.h"
#include "node/output/folder_files.h"
#include "node/ports/system_clock.h"
#include "node/process/box_planner.h"
#include "node/process/hooks.h"
#include "node/process/shim_spawner.h"
#include "node/sessions/sessions.h"
#include "node/workers/worker_spawner.h"

namespace gpusched {

struct AgentOptions {
  std::string scheduler;  ///< See parse_scheduler_addresses.
  std::string node_name;
  std::string data_folder;
  std::string version;
  std::string token_file = {};    ///< Empty: no token.
  LinkTls tls = {};               ///< For the way to the scheduler.
  std::string sim_gpus = {};      ///< Empty: the machine's own GPUs.
  std::string sim_links = {};     ///< How simulated ones are linked; see parse_sim_links. Empty: not known.
  std::string nvml_library = {};  ///< Empty: the system's.
  std::vector<std::string> gpu_daemons = default_gpu_daemons();  ///< See there.
  std::string nvidia_smi = {};    ///< Asked where NVML finds nothing; empty: the one in $PATH.
  std::string shim_program = {};  ///< Empty: gpu-shim beside this program.
  int64_t cpus = 0;               ///< 0: as many as this process may use.
  int64_t memory_mb = 0;          ///< 0: all of the machine.
  Duration grace = seconds(10);   ///< Used where the scheduler names none.
  std::size_t finished_kept = 10'000;
  int64_t log_bytes_max = int64_t{256} << 20;      ///< Kept of each output of an attempt; 0: all.
  int64_t all_logs_bytes_max = int64_t{20} << 30;  ///< Kept of all attempts' output; 0: no limit.
  Duration logs_kept = hours(7 * 24);              ///< After an attempt's end; zero: for ever.
  std::map<std::string, std::string> labels = {};
  std::string address = {};      ///< For gangs' members on other nodes to reach this one; empty: its name.
  PortRange service_ports = {};  ///< Ports for services' replicas.
  Duration order_patience = seconds(60);  ///< See NodeOptions.
  HookOptions hooks = {};
  FaultTable gpu_faults = {};
  Duration share_memory_grace = {};  ///< See NodeOptions.
  std::string kernel_log =
      "/dev/kmsg";  ///< Source of the Xids that the driver does not tell; empty: they are not read.
  BoxOptions box = {};
  ContainerOptions containers = {};
  std::optional<MetricsPortOptions> metrics = {};  ///< Absent: no metrics port. Its token is the agent's.
};

/// Duties of the agent's loop beside its work, for its owner. Every function may be empty.
struct AgentDuties {
  int reload_descriptor = -1;  ///< Readable: `reload` is called, which reads it.
  std::function<void()> reload = {};
  Duration pulse_every = {};  ///< Zero: `pulse` is never called.
  std::function<void()> pulse = {};
  std::function<void(const std::string&)> status = {};  ///< Told of the connection in one line.
};

/// The node agent: NodeCore with this machine's clock, disk, processes, devices and network, in one loop.
/// `open` and `run` belong to one thread; `stop` may be called by any.
class Agent final : private ShimListener {
 public:
  /// Takes the data folder and finds out what earlier agents left. An error says what to do about it.
  static Result<std::unique_ptr<Agent>> open(AgentOptions options);
  ~Agent() override;

  /// Works until `stop`, or until `stop_descriptor` (-1: none) is readable. Jobs go on without it.
  void run(int stop_descriptor = -1, AgentDuties duties = {});
  void stop();

  const std::vector<DeviceFacts>& devices() const { return devices_; }
  std::string_view driver_name() const { return driver_ == nullptr ? "none" : driver_->name(); }

 private:
  explicit Agent(AgentOptions options);
  Result<Unit> prepare();
  Result<Unit> open_driver();
  Result<Unit> settle_devices(std::shared_ptr<GpuDriver> driver);
  /// The devices that were here before, when the driver does not answer any more.
  Result<Unit> remember_devices(const Error& trouble);
  void keep_slices();
  void open_link();
  Result<Unit> open_spawner(const std::string& mark, const std::string& shim_program);
  Result<Unit> open_core();
  Result<Unit> open_metrics();
  void end_hooks_of_earlier_agents() const;
  Result<Unit> find_certificate();
  Result<Unit> read_addresses();
  Result<Unit> check_scheduler(const SchedulerAddress& scheduler) const;
  std::map<AttemptKey, ShimProcess> recorded_shims() const;
  std::function<std::string(const std::string&, const std::string&)> local_token_finder() const;
  void find_containers(const std::string& instance, const std::string& shim_program);

  void on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) override;
  void on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) override;
  void on_shim_prepared(const AttemptKey& key) override;
  void on_shim_saved(const AttemptKey& key, int64_t unix_ns) override;
  void on_shim_lost(const AttemptKey& key, const std::string& detail) override;
  void on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) override;

  void add_source(int descriptor);
  int wait_ms() const;
  void turn();
  void do_duties(bool reload);
  void take_link_inputs();
  Result<Unit> check_term(const v1::SchedulerMessage& message);
  /// True: it was about the certificate, and is nobody else's.
  void note_registered();
  bool take_certificate(const v1::SchedulerMessage& message);
  void take_order_keys(const std::string& keys);
  void renew_certificate();
  void on_hook_finished(const ScriptHooks::Finished& finished);
  void on_device_finished(DeviceMonitor::Finished finished);
  void open_kernel_log();
  void read_kernel_log(Time now);
  std::vector<std::string> features() const;
  void remember_scheduler(const v1::Registered& registered);
  void on_refused(const v1::Refused& refused);
  void on_connection_lost(const std::string& why);
  void try_to_connect(Time now);

  AgentOptions options_;
  SystemClock clock_;
  std::optional<SchedulerRounds> schedulers_;  ///< Set once they are read.
  std::string token_;
  std::optional<NodeRenewal> renewal_;  ///< None: this node has no certificate.
  std::optional<FolderLock> lock_;
  FolderIdentity identity_;
  std::optional<TermFence> fence_;
  std::vector<DeviceFacts> devices_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<DeviceMonitor> monitor_;
  std::unique_ptr<AttemptLog> log_;
  std::unique_ptr<BoxPlanner> boxes_;
  std::unique_ptr<SpareFolders> spares_;
  std::unique_ptr<FolderFiles> files_;
  ProcMeter meter_;
  std::unique_ptr<GrpcLink> link_;
  std::unique_ptr<WorkerSpawner> workers_;
  std::unique_ptr<ShimSpawner> spawner_;
  std::string driver_fault_;  ///< Why the driver could not be opened, when devices were here before.
  std::unique_ptr<ScriptHooks> hooks_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<EndpointWatch> endpoints_;
  std::unique_ptr<FaultFile> fault_file_;
  std::unique_ptr<KernelLog> kernel_log_;
  Time next_log_read_;
  std::unique_ptr<NodeCore> core_;
  std::shared_ptr<const ContainerNode> containers_;
  std::unique_ptr<ContainerSweep> container_sweep_;
  std::unique_ptr<AgentMetrics> metrics_;
  int epoll_ = -1;
  int stop_event_ = -1;

  enum class Connection { kWaiting, kConnecting, kUp };
  Connection connection_ = Connection::kWaiting;
  Time connection_due_;                          ///< When to connect; or, connecting, when to give up.
  std::map<std::string, std::string> troubles_;  ///< Troubles by address; said once, not at every try.
  AgentDuties duties_;
  Time pulse_due_ = kNever;
};

}  // namespace gpusched
