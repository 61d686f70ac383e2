#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "base/session_limits.h"
#include "base/storage_limits.h"

namespace gpusched {

/// Every setting with its default. Their meanings, ranges and names for people stand in `keys.cc`; the
/// members are named as there.
struct Config {
  std::string environment = "development";

  struct Scheduler {
    int64_t scheduling_interval_ms = 100;
    int64_t max_queue_size = limits::kQueueSizeDefault;
    bool enable_preemption = true;
    int64_t preemption_protection_seconds = 60;
    int64_t preemption_wait_seconds = 30;
    int64_t preemptions_per_job_max = 3;
    bool enable_gang_scheduling = true;
    std::string rack_label = "topology.rack";
    std::string block_label = "topology.block";
    std::string zone_label = "topology.zone";
    bool enable_thermal_aware = true;
    double thermal_threshold = 75;
    int64_t thermal_hysteresis = 5;
    int64_t thermal_readings = 3;
    int64_t thermal_auto_margin = 10;
    int64_t watchdog_idle_seconds = 3'600;
    std::string watchdog_idle_action = "warn";
    int64_t watchdog_hung_seconds = 7'200;
    std::string watchdog_hung_action = "warn";
    int64_t watchdog_seconds_max = 0;
    bool watchdog_may_soften = false;
    int64_t default_priority = 100;
    int64_t aging_per_hour = 10;
    std::string queue_order = "priority_aging";
    std::string job_order = "priority_aging";
    std::vector<std::string> attained_levels = {"3600", "36000"};
    int64_t overtaking_hours = 24;
    bool preempt_by_attained = false;
    int64_t interactive_gpus_max = 1;
    int64_t interactive_minutes_max = 240;
    int64_t interactive_wait_seconds = 5;
    int64_t preempt_grace_max_seconds = 300;
    std::string moves = "propose";
    int64_t moves_price_max = 600;
    int64_t moves_per_hour_max = 4;
    int64_t moves_rest_seconds = 3'600;
    std::string fence_command;
    int64_t fence_after_seconds = 60;
    int64_t fence_timeout_seconds = 120;
    std::string preempt_webhook_url;
    std::vector<std::string> preempt_webhook_hosts;
    int64_t pool_online_percent = 0;
    int64_t pool_batch_percent = 0;
    std::string pool_mode = "strict";
    int64_t use_half_life_hours = 24 * 7;
    int64_t reservations = 1;
    std::string run_times = "learned";
    std::string placement = "best_fit";
    int64_t specs_mb_max = 4'096;
    int64_t finished_jobs_max = limits::kFinishedJobsDefault;
    int64_t finished_jobs_days = 7;
    int64_t node_lease_ms = 15'000;
    int64_t grace_ms = 0;
    int64_t auto_drain_percent = limits::kAutoDrainPercentDefault;
    int64_t drain_limit_seconds = limits::kDrainLimitDefault.ns / 1'000'000'000;
    int64_t snapshot_mb = 256;
    int64_t clock_jump_max_hours = limits::kClockJumpMax.ns / 3'600'000'000'000;
    int64_t debug_blocked_ms = 0;
  } scheduler;

  struct Admission {
    int64_t soft_queue = 0;
    double throttled_rate = 1;
    double user_rate = 0;
    int64_t user_burst = 1'000;
    int64_t user_daily = 0;
    std::vector<std::string> task_costs = {"embedding=1", "llm=5", "diffusion=10"};
  } admission;

  struct Tasks {
    int64_t grpc_port = 0;  ///< 0: gRPC is served on its own port alone.
    int64_t http_port = 0;  ///< 0: none; what is beside the tasks is served on the API's port alone.
    std::string embedding_command, llm_command, diffusion_command, other_command;
    /// "process": one for each task; "persistent": it stays, and gets one task after the other.
    std::string embedding_worker = "process", llm_worker = "process", diffusion_worker = "process",
                other_worker = "process";
    /// URLs that tasks are sent to on their nodes, in the place of commands.
    std::string embedding_endpoint, llm_endpoint, diffusion_endpoint, other_endpoint;
    std::vector<std::string> endpoint_hosts;
    std::string endpoint_health_path = "/health";
    int64_t endpoint_timeout_seconds = 300, endpoint_retries = 3, endpoint_ready_seconds = 300;
    int64_t worker_idle_seconds = 30, worker_health_seconds = 10;
    int64_t embedding_worker_tasks = 1, llm_worker_tasks = 1, diffusion_worker_tasks = 1,
            other_worker_tasks = 1;
    int64_t gpu_memory_mb = 1'024;
    std::vector<std::string> cpu_milli = {"embedding=100", "llm=200", "diffusion=200", "other=100"};
    bool learn_use = true;
    int64_t gpu_tflops = 100;
    int64_t queue_size = 1'000;
    double tokens_per_second = 100;
    int64_t tokens_burst = 1'000;
    int64_t tokens_daily = 1'000'000;
    int64_t order_window_seconds = 300;
    double order_gamma = 0.1;
    std::vector<std::string> user_weights;
  } tasks;

  struct Journal {
    int64_t segment_mb = 16;
  } journal;

  struct Api {
    std::string address = "127.0.0.1";
    int64_t http_port = 8080;
    int64_t grpc_port = 9090;
    bool enable_tls = false;
    std::string tls_cert_path;
    std::string tls_key_path;
    std::string tls_minimum_version = "1.2";
    bool grpc_tls = true;
    bool cors_enabled = false;
    std::vector<std::string> cors_origins;
    bool token_required = false;
    std::string anonymous_priority_tier = "high";
    std::vector<std::string> anonymous_networks;
    bool anonymous_public_networks = false;
    bool anonymous_nodes = false;
    std::vector<std::string> anonymous_may;
    std::vector<std::string> host_names;
    std::string unix_socket = "auto";
    std::string admin_group = "gpu-admin";
    int64_t copy_bytes_max = limits::kFileBytesDefault;
    double rate_limit_rps = 0;
    std::string jwt_issuer;
    std::string jwt_audience;
    std::string jwt_keys;
    std::string jwt_rules_file;
    std::vector<std::string> jwt_algorithms = {"EdDSA", "ES256", "RS256"};
    int64_t jwt_leeway_seconds = 30;
    int64_t jwt_refresh_seconds = 300;
    int64_t jwt_stale_hours = 24;
    std::string jwt_ca_file;
    std::vector<std::string> jwt_private_hosts;
    double caller_rate_limit_rps = 0;
    int64_t caller_rate_burst = 0;
    int64_t caller_streams_max = 1'000;
    int64_t caller_sessions_max = 256;
    int64_t address_connections_max = 1'000;
    double failed_credentials_rps = 10;
    int64_t failed_credentials_burst = 100;
  } api;

  struct Metrics {
    bool enabled = true;
    int64_t port = 9091;
    std::string path = "/metrics";
    std::string name_space = "gpu_scheduler";  ///< Key `namespace`.
    bool open = false;
  } metrics;

  struct Doors {
    int64_t allocation_port = 0;
    bool compatible = false;
  } doors;

  struct Log {
    std::string level = "info";
    std::string path;
  } log;

  struct Audit {
    bool enabled = true;
    std::string file;  ///< Empty: DATA_DIR/audit.log.
    int64_t max_mb = 512;
  } audit;

  struct History {
    bool enabled = true;
    std::string path;  ///< Empty: DATA_DIR/history/history.db.
    int64_t days = 730;
    int64_t leaves_mb = 256;
    int64_t events_max = 200'000;
  } history;

  struct Replica {
    int64_t id = 0;                  ///< 0: this scheduler is the only one.
    std::vector<std::string> peers;  ///< See `replica_peers`.
    std::string address;             ///< Empty: the host of this scheduler's own entry.
  } replica;

  struct Machines {
    std::string pools_file;  ///< Empty: no machines are asked for.
  } machines;

  struct Agent {
    std::string node_id;
    int64_t heartbeat_interval_ms = 5'000;
    int64_t metrics_interval_ms = 5'000;
    bool accept_old_handshake = false;
    bool require_certificates = false;
    int64_t certificate_seconds = 7'776'000;
    int64_t health_check_interval_ms = 30'000;
    bool dcgm_enabled = false;
    std::string dcgm_host_port = "localhost:5555";
    std::string container_runtime = "none";
    std::string unix_socket = "auto";
  } agent;

  struct Database {
    std::string host;
    int64_t port = 5432;
    std::string user;
    std::string password;
    std::string database = "gpu_scheduler";
    std::string sslmode = "prefer";
    int64_t max_open_conns = 10;
    int64_t max_idle_conns = 5;
    int64_t conn_max_lifetime_mins = 30;
  } database;

  struct Redis {
    std::string host = "localhost";
    int64_t port = 6379;
    std::string password;
    int64_t db = 0;
    int64_t pool_size = 10;
    int64_t min_idle_conns = 2;
  } redis;

  struct Telemetry {
    bool tracing_enabled = false;
    std::string jaeger_endpoint;
    bool profiling_enabled = false;
    int64_t profiling_port = 6060;
  } telemetry;

  struct Kubernetes {
    bool in_cluster = false;
    std::string kubeconfig_path;
    std::string name_space = "default";  ///< Key `namespace`.
  } kubernetes;

  /// `scheduler.attained_levels` as numbers; none when they are not positive integers that rise.
  std::optional<std::vector<int64_t>> attained_gpu_seconds() const;
};

/// Words that `api.anonymous_may` may have.
inline constexpr std::string_view kAnonymousMay[] = {"create_tenant", "set_quota", "priority_critical"};

/// `admission.task_costs` as tokens by type; nothing when an entry is not "type=tokens" or a type comes
/// twice.
std::optional<std::map<std::string, int64_t>> parse_task_costs(const std::vector<std::string>& entries);

/// Types of tasks of agents, by their names in settings.
inline constexpr std::string_view kTaskTypes[] = {"embedding", "llm", "diffusion", "other"};

/// `tasks.cpu_milli` by type: "type=milli", or one number for all types, which those with a type precede.
/// Types that are not named have their default. Nothing: an entry is neither, has an unknown type or too
/// large a number, or a type comes twice.
std::optional<std::map<std::string, int64_t>> parse_task_cpu(const std::vector<std::string>& entries);

/// Ports on which clients of other systems expect the doors.
struct CompatiblePorts {
  int64_t tasks_grpc = 50'051, tasks_http = 8'081, allocation = 8'000;
};

/// `tasks.user_weights` in thousandths by user; nothing when an entry is not "user=weight" with a weight from
/// 0.01 to 10, or a user comes twice.
std::optional<std::map<std::string, int64_t>> parse_user_weights(const std::vector<std::string>& entries);

/// One scheduler of a cluster of several, by `replica.peers`.
struct ReplicaPeer {
  uint64_t id = 0;
  std::string host;   ///< A name or an address.
  uint16_t port = 0;  ///< Where it listens for the others.

  friend bool operator==(const ReplicaPeer&, const ReplicaPeer&) = default;
};

/// `replica.peers`, this scheduler's own entry too, in their order; empty: it is the only one.
/// kInvalidArgument with one sentence: they are no cluster with this scheduler in it.
Result<std::vector<ReplicaPeer>> replica_peers(const Config& config);

/// A value that stands above file and environment, such as a command-line flag's.
struct ConfigOverride {
  std::string key;    ///< "api.http_port".
  std::string value;  ///< Value as in an environment variable.
  std::string from;   ///< Source, for `print_config`: "--http-port".
};

struct ConfigInputs {
  std::string path = {};                                ///< The YAML file; empty: none.
  std::map<std::string, std::string> environment = {};  ///< Name to value; usually `process_environment()`.
  std::vector<ConfigOverride> overrides = {};
};

struct LoadedConfig {
  Config values;
  /// Source of each key's value, such as "scheduler.yaml:3"; keys with their default are absent.
  std::map<std::string, std::string, std::less<>> origins;
};

/// A copy of this process's environment.
std::map<std::string, std::string> process_environment();

/// Defaults, then the file, then environment variables `GPU_SCHEDULER_<SECTION>_<KEY>`, then overrides: the
/// later wins. Refuses unknown keys with the nearest known one, values of the wrong type or out of range, and
/// keys given twice: kInvalidArgument, one problem a line with file and line number, all of them at once. A
/// key without effect takes any value; one that it cannot hold leaves the default. A file that cannot be read
/// is kIo or kNotFound. Variables of our prefix that name no section are not ours.
Result<LoadedConfig> load_config(const ConfigInputs& inputs);

/// The keys that were given and have no effect, in the order of the keys: "database.host, redis.port"; empty
/// when there are none.
std::string keys_without_effect(const LoadedConfig& config);

/// The whole configuration as YAML that `load_config` reads, behind each value where it comes from. Passwords
/// are masked.
std::string print_config(const LoadedConfig& config);

/// The table of keys as the Markdown page `docs/reference/configuration.md`.
std::string configuration_reference();

}  // namespace gpusched
