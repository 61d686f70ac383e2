#include "main/serve.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <thread>

#include "api/contract/spec_peek.h"
#include "api/contract/token.h"
#include "api/grpc/tls_credentials.h"
#include "api/server.h"
#include "audit/audit_log.h"
#include "base/check.h"
#include "config/keys.h"
#include "host/history/host_with_history.h"
#include "host/shared_host.h"
#include "log/log.h"
#include "main/callers/anonymous_callers.h"
#include "main/fencing.h"
#include "main/keys/order_key_files.h"
#include "main/machines/pools_file.h"
#include "main/own_certificate.h"
#include "main/ports_file.h"
#include "main/preempt_webhooks.h"
#include "main/supervise.h"
#include "main/tasks/task_settings.h"
#include "main/tokens/jwt_service.h"
#include "main/unix_socket.h"
#include "ops/port_holder.h"

namespace gpusched {
namespace {

// Labels that equal the default are the default, so that nothing is journaled for them.
std::vector<std::string> domain_labels_of(const Config::Scheduler& config) {
  const std::vector<std::string> labels = {config.rack_label, config.block_label, config.zone_label};
  const Config::Scheduler shipped;
  if (labels == std::vector<std::string>{shipped.rack_label, shipped.block_label, shipped.zone_label})
    return {};
  return labels;
}

SchedulingPolicy policy_of(const Config& config) {
  return {.queue_order = config.scheduler.queue_order,
          .reservations = config.scheduler.reservations,
          .run_times = config.scheduler.run_times,
          .job_order = config.scheduler.job_order,
          .attained_levels = config.attained_gpu_seconds().value_or(std::vector<int64_t>{}),
          .overtaking = hours(config.scheduler.overtaking_hours),
          .preempt_by_attained = config.scheduler.preempt_by_attained,
          .domain_labels = domain_labels_of(config.scheduler),
          // A rule that equals the default is the default, so that nothing is journaled for it.
          .placement = config.scheduler.placement == "best_fit" ? "" : config.scheduler.placement};
}

HeatLimits heat_limits_of(const Config::Scheduler& config) {
  const bool by_device = config.thermal_threshold < 0;
  const auto threshold = static_cast<int32_t>(std::floor(config.thermal_threshold));
  HeatLimits limits{.threshold_celsius = by_device ? HeatLimits::kAuto : threshold,
                    .hysteresis_celsius = static_cast<int32_t>(config.thermal_hysteresis),
                    .readings = static_cast<int32_t>(config.thermal_readings),
                    .auto_margin_celsius = static_cast<int32_t>(config.thermal_auto_margin)};
  if (!config.enable_thermal_aware) limits.threshold_celsius = HeatLimits::kOff;
  return limits;
}

WatchAction watch_action_of(const std::string& word) {
  for (const WatchAction action : {WatchAction::kRequeue, WatchAction::kCancel}) {
    if (word == to_string(action)) return action;
  }
  return WatchAction::kWarn;
}

PoolShares shares_of(const Config& config) {
  return {.online_milli = config.scheduler.pool_online_percent * 10,
          .batch_milli = config.scheduler.pool_batch_percent * 10,
          .lend = config.scheduler.pool_mode == "lending"};
}

/// The shares of the pools are the configuration's until they are set by a call.
void warn_of_pools(Host& host, const Config& config) {
  host.observer().read(0, [file = shares_of(config)](const Observer::View& view) {
    const PoolShares& now = view.state.config.pools;
    if (!now.set || now.same_shares(file)) return;
    log_event(
        LogLevel::kWarning, "scheduler", "pools_differ_from_configuration", {},
        {{"online_percent", static_cast<double>(now.online_milli) / 10},
         {"configured_online_percent", static_cast<double>(file.online_milli) / 10},
         {"hint",
          "the quota was set by a call and holds; write it into the configuration to have that rule again"}});
  });
}

MoveTuning move_tuning_of(const Config::Scheduler& config) {
  MoveTuning::Mode mode = MoveTuning::Mode::kPropose;
  if (config.moves == "off") mode = MoveTuning::Mode::kOff;
  if (config.moves == "act") mode = MoveTuning::Mode::kAct;
  return {.mode = mode,
          .price_max = config.moves_price_max,
          .per_hour_max = config.moves_per_hour_max,
          .rest = seconds(config.moves_rest_seconds)};
}

WatchLimits watch_limits_of(const Config::Scheduler& config) {
  return {.usual = {.idle_after = seconds(config.watchdog_idle_seconds),
                    .idle_action = watch_action_of(config.watchdog_idle_action),
                    .hung_after = seconds(config.watchdog_hung_seconds),
                    .hung_action = watch_action_of(config.watchdog_hung_action)},
          .after_max = seconds(config.watchdog_seconds_max),
          .job_may_soften = config.watchdog_may_soften};
}

AdmissionPolicy admission_of(const Config& config) {
  AdmissionPolicy policy{.rate_milli = std::llround(config.admission.user_rate * 1'000),
                         .burst = config.admission.user_burst,
                         .daily = config.admission.user_daily,
                         .soft_queue = config.admission.soft_queue,
                         .throttled_milli = std::llround(config.admission.throttled_rate * 1'000)};
  // A policy that is off stays the same, whatever else is configured; but tenants may still be throttled.
  if (!policy.active()) {
    const bool unusual = config.admission.throttled_rate != Config{}.admission.throttled_rate;
    return {.throttled_milli = unusual ? policy.throttled_milli : 0};
  }
  const std::optional<std::map<std::string, int64_t>> costs = parse_task_costs(config.admission.task_costs);
  CHECK(costs.has_value());  // The configuration was checked.
  for (const auto& [type, tokens] : *costs) {
    if (tokens != 1) policy.costs.push_back({.type = type, .tokens = tokens});
  }
  return policy;
}

history::HistoryOptions history_options(const Config& config, const std::string& data_dir) {
  const Config::History& history = config.history;
  history::HistoryOptions options{
      .path = history.path.empty() ? data_dir + "/history/history.db" : history.path,
      .days = history.days,
      .events_max = static_cast<std::size_t>(history.events_max),
      .leaves_bytes = static_cast<uint64_t>(history.leaves_mb) << 20};
  if (!config.database.host.empty()) {
    options.postgres = history::PostgresOptions{.server = postgres_server(config.database),
                                                .days = history.days,
                                                .events_max = options.events_max,
                                                .lifetime = minutes(config.database.conn_max_lifetime_mins)};
  }
  return options;
}

/// Without a history there is nothing that a database could be given.
void warn_of_unused_database(const Config& config) {
  if (config.history.enabled || config.database.host.empty()) return;
  log_event(LogLevel::kWarning, "scheduler", "database_not_used", {},
            {{"host", config.database.host},
             {"means",
              "history.enabled is false, so nothing is written to the database: enable it, or remove "
              "database.host"}});
}

}  // namespace

history::PostgresServer postgres_server(const Config::Database& config) {
  return {.host = config.host,
          .port = config.port,
          .user = config.user,
          .password = config.password,
          .database = config.database,
          .sslmode = config.sslmode};
}

HostOptions host_options(const Config& config, const std::string& data_dir) {
  HostOptions options;
  options.data_dir = data_dir;
  options.engine.feature_level = kFeatureLevel;
  options.engine.aging_per_hour = config.scheduler.aging_per_hour;
  options.engine.policy = policy_of(config);
  options.engine.admission = admission_of(config);
  options.engine.interactive_gpus_max = config.scheduler.interactive_gpus_max;
  options.engine.interactive_runtime_max = minutes(config.scheduler.interactive_minutes_max);
  options.engine.interactive_wait = seconds(config.scheduler.interactive_wait_seconds);
  options.engine.pools = shares_of(config);
  options.engine.use_half_life = hours(config.scheduler.use_half_life_hours);
  options.engine.queue_size_max = config.scheduler.max_queue_size;
  options.engine.finished_jobs_max = config.scheduler.finished_jobs_max;
  options.engine.finished_jobs_kept = hours(24 * config.scheduler.finished_jobs_days);
  options.engine.drain_limit = seconds(config.scheduler.drain_limit_seconds);
  options.engine.auto_drain_percent = config.scheduler.auto_drain_percent;
  options.tuning.spec_bytes_max = config.scheduler.specs_mb_max << 20;
  options.tuning.grace = milliseconds(config.scheduler.grace_ms);
  options.tuning.preempt_grace_max = seconds(config.scheduler.preempt_grace_max_seconds);
  options.tuning.preemption = config.scheduler.enable_preemption;
  options.tuning.victims.protection = seconds(config.scheduler.preemption_protection_seconds);
  options.tuning.victims.patience = seconds(config.scheduler.preemption_wait_seconds);
  options.tuning.victims.budget = config.scheduler.preemptions_per_job_max;
  options.tuning.node_lease = milliseconds(config.scheduler.node_lease_ms);
  options.tuning.heat = heat_limits_of(config.scheduler);
  options.tuning.watch = watch_limits_of(config.scheduler);
  options.tuning.moves = move_tuning_of(config.scheduler);
  options.tuning.tasks = task_order_of(config.tasks);
  options.tuning.clock_jump_max = hours(config.scheduler.clock_jump_max_hours);
  options.tuning.step_max = milliseconds(config.scheduler.debug_blocked_ms);
  options.tuning.heartbeat = milliseconds(config.agent.heartbeat_interval_ms);
  options.segment_bytes = config.journal.segment_mb << 20;
  options.snapshot_bytes = config.scheduler.snapshot_mb << 20;
  return options;
}

namespace {

class ServiceImpl final : public Service {
 public:
  ServiceImpl(std::unique_ptr<Host> host, const Config& config, std::string data_dir,
              std::shared_ptr<sign::TlsServer> tls, JwtSetup tokens)
      : data_dir_(std::move(data_dir)),
        host_(std::move(host)),
        tls_(std::move(tls)),
        tokens_(std::move(tokens)),
        config_(config) {}
  ~ServiceImpl() override { stop(); }

  /// Before the doors.
  Result<Unit> open_audit(const Config& config);
  /// Before the first change that it has to be told of: at once.
  void open_history(const Config& config);
  void open_hooks(const Config& config);
  /// Before the doors; they begin to act after these.
  Result<Unit> open_pools(const Config& config);
  void start_machines();
  Result<Unit> open_doors(const Config& config, const LeaderSeat* seat);
  const BoundPorts& ports() const override { return ports_; }
  int64_t active_jobs() override;
  Result<Unit> reconfigure(const Config& config) override;
  void renew_certificate() override;
  void reopen_audit() override {
    if (audit_ != nullptr) audit_->reopen();
  }
  void note_reload(bool worked) override { server_->note_reload(worked); }
  void touch(std::function<void()> alive) override;
  void close_doors(Duration patience) override;
  void stop() override;

 private:
  /// They are bound: says which, also to those who look into the folder.
  void publish_ports(const api::ServerPorts& bound);
  void note_order_keys(const std::string& told);

  const std::string data_dir_;
  std::unique_ptr<Host> host_;
  history::History* history_ = nullptr;         ///< The host's; null: none is kept.
  const std::shared_ptr<sign::TlsServer> tls_;  ///< None: plain.
  JwtService tokens_;
  std::unique_ptr<PreemptWebhooks> webhooks_;
  std::unique_ptr<Fencing> fencing_;
  std::unique_ptr<machines::Machines> machines_;  ///< Null: no pools. Before the server, which asks it.
  std::unique_ptr<audit::AuditLog> audit_;  ///< Null: there is none. Before the server, which writes to it.
  std::unique_ptr<api::Server> server_;
  BoundPorts ports_;
  Config config_;  ///< As it was last read: what the certificate is for.
  bool stopped_ = false;
};

void log_identity(const Config& config, const std::string& data_dir, const sign::TlsIdentity& identity) {
  log_event(LogLevel::kInfo, "scheduler", "certificate_loaded", {},
            {{"file", tls_files(config, data_dir).certificate},
             {"subject", identity.subject()},
             {"fingerprint", identity.fingerprint()},
             {"expires_at", identity.expires_at()}});
}

/// Warns of ports that a person who set TLS up may not expect to be plain.
void warn_of_plain_ports(const Config& config) {
  if (config.api.enable_tls && !config.api.grpc_tls && !api::is_loopback(config.api.address)) {
    log_event(
        LogLevel::kWarning, "scheduler", "grpc_without_tls", {},
        {{"address", config.api.address},
         {"message",
          "HTTP and the metrics speak TLS, but gRPC, which agents use too, does not: give every agent a "
          "ca_file, then remove api.grpc_tls: false"}});
  }
  if (!config.api.enable_tls && !config.api.tls_cert_path.empty()) {
    log_event(LogLevel::kWarning, "scheduler", "tls_is_off", {},
              {{"file", config.api.tls_cert_path},
               {"message", "api.tls_cert_path has no effect while api.enable_tls is false"}});
  }
}

api::CallerLimits limits_of(const Config& config) {
  const Config::Api& api = config.api;
  return {.address_rate = {.per_second = api.rate_limit_rps},
          .failed_rate = {.per_second = api.failed_credentials_rps,
                          .burst = static_cast<double>(api.failed_credentials_burst)},
          .caller_rate = {.per_second = api.caller_rate_limit_rps,
                          .burst = static_cast<double>(api.caller_rate_burst)},
          .streams_max = static_cast<std::size_t>(api.caller_streams_max),
          .sessions_max = static_cast<std::size_t>(api.caller_sessions_max),
          .connections_max = static_cast<std::size_t>(api.address_connections_max)};
}

/// Names who has the port and the setting that chooses another one.
Error port_taken(Error error, const Config& config) {
  if (error.code != ErrorCode::kLocked || error.field.empty()) return error;
  const std::size_t dot = error.field.find('.');
  CHECK(dot != std::string::npos);
  const ConfigKey* key = find_config_key(error.field.substr(0, dot), error.field.substr(dot + 1));
  CHECK(key != nullptr);
  const int64_t port = error.field == "api.http_port"           ? config.api.http_port
                       : error.field == "api.grpc_port"         ? config.api.grpc_port
                       : error.field == "doors.allocation_port" ? config.doors.allocation_port
                       : error.field == "tasks.grpc_port"       ? config.tasks.grpc_port
                       : error.field == "tasks.http_port"       ? config.tasks.http_port
                                                                : config.metrics.port;
  const bool may_be_off = error.field == "doors.allocation_port" || error.field.starts_with("tasks.");
  const std::string holder = port_holder(static_cast<uint16_t>(port));
  error.message += "; " + (holder.empty() ? "another process" : holder) +
                   " listens on that port; stop it, or set " + error.field + " (" + key->environment() +
                   ") to another port, or to 0 for " + (may_be_off ? "none" : "any free one");
  return error;
}

/// Nothing: plain.
Result<std::shared_ptr<sign::TlsServer>> load_tls(const Config& config, const std::string& data_dir) {
  warn_of_plain_ports(config);
  if (!config.api.enable_tls) return std::shared_ptr<sign::TlsServer>();
  Result<std::shared_ptr<const sign::TlsIdentity>> identity = current_identity(config, data_dir);
  if (!identity.ok()) return identity.error();
  log_identity(config, data_dir, **identity);
  api::set_up_grpc_tls(config.api.tls_minimum_version == "1.2");
  return std::make_shared<sign::TlsServer>(std::move(*identity));
}

Result<Unit> ServiceImpl::open_audit(const Config& config) {
  if (!config.audit.enabled) return Unit{};
  const std::string path = config.audit.file.empty() ? data_dir_ + "/audit.log" : config.audit.file;
  Result<std::unique_ptr<audit::AuditLog>> opened =
      audit::AuditLog::open({.path = path, .bytes_max = config.audit.max_mb << 20});
  if (!opened.ok()) return opened.error();
  audit_ = std::move(*opened);
  return Unit{};
}

/// Nodes' certificates are of the scheduler's own authority, whoever signed its own.
Result<Unit> add_node_authority(const Config& config, const std::string& data_dir,
                                api::ServerOptions& options) {
  options.node_certificate_valid = seconds(config.agent.certificate_seconds);
  options.node_certificates_required = config.agent.require_certificates;
  if (options.grpc_tls == nullptr) return Unit{};
  Result<sign::Authority> authority = sign::Authority::open(authority_folder(data_dir));
  if (!authority.ok()) return authority.error();
  options.node_authority = std::make_shared<const sign::Authority>(std::move(*authority));
  // In the same folder: who keeps the one keeps the other.
  Result<sign::OrderKey> order_key = sign::OrderKey::open(order_key_files(authority_folder(data_dir)).key);
  if (!order_key.ok()) return order_key.error();
  options.node_order_key = std::make_shared<const sign::OrderKey>(std::move(*order_key));
  Result<std::string> told = told_order_keys(authority_folder(data_dir), *options.node_order_key);
  if (!told.ok()) return told.error();
  options.node_order_keys = std::move(*told);
  return Unit{};
}

Result<Unit> bind_sockets(const Config& config, api::ServerOptions& options) {
  Result<std::shared_ptr<ops::SocketFile>> of_api = bind_api_socket(config.api);
  if (!of_api.ok()) return of_api.error();
  options.unix_socket = std::move(*of_api);
  Result<std::shared_ptr<ops::SocketFile>> of_agents = bind_agent_socket(config);
  if (!of_agents.ok()) return of_agents.error();
  options.agent_socket = std::move(*of_agents);
  return Unit{};
}

void set_ports(const Config& config, api::ServerOptions& options) {
  options.http_port = static_cast<uint16_t>(config.api.http_port);
  options.grpc_port = static_cast<uint16_t>(config.api.grpc_port);
  options.metrics_enabled = config.metrics.enabled;
  options.metrics_port = static_cast<uint16_t>(config.metrics.port);
  if (config.doors.allocation_port > 0)
    options.allocation_port = static_cast<uint16_t>(config.doors.allocation_port);
}

void set_tasks(const Config::Tasks& tasks, api::ServerOptions& options) {
  options.tasks_grpc_port = static_cast<uint16_t>(tasks.grpc_port);
  if (tasks.http_port > 0) options.tasks_http_port = static_cast<uint16_t>(tasks.http_port);
  options.tasks = agent_tasks_of(tasks);
  options.learn_task_use = tasks.learn_use;
}

/// Program and first arguments of an agent on this machine. Over the socket it needs no token.
std::vector<std::string> local_agent_words(const BoundPorts& ports) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path agent =
      failed ? std::filesystem::path("gpu-agent") : self.parent_path() / "gpu-agent";
  const bool has_socket = !ports.agent_socket.empty();
  std::vector<std::string> words = {
      agent.string(), "--scheduler",
      has_socket ? "unix:" + ports.agent_socket : "127.0.0.1:" + std::to_string(ports.grpc)};
  if (!has_socket && !ports.grpc_certificate.empty())
    words.insert(words.end(), {"--ca", ports.grpc_certificate});
  return words;
}

/// The facts that are told beside the port numbers.
BoundPorts beside_ports(const api::ServerOptions& options) {
  BoundPorts ports{.https = options.tls != nullptr};
  if (options.grpc_tls != nullptr) ports.grpc_certificate = options.grpc_tls->identity()->fingerprint();
  if (options.unix_socket != nullptr) ports.unix_socket = options.unix_socket->path();
  if (options.agent_socket != nullptr) ports.agent_socket = options.agent_socket->path();
  return ports;
}

void ServiceImpl::open_history(const Config& config) {
  warn_of_unused_database(config);
  if (!config.history.enabled) return;
  auto both = std::make_unique<HostWithHistory>(
      std::move(host_), data_dir_, history_options(config, data_dir_),
      [](const Job& job) { return std::string(api::peek_spec(job.spec.view()).name); });
  history_ = &both->history();
  host_ = std::move(both);
}

void ServiceImpl::open_hooks(const Config& config) {
  webhooks_ = std::make_unique<PreemptWebhooks>(
      PreemptWebhookOptions{.url = config.scheduler.preempt_webhook_url,
                            .hosts = config.scheduler.preempt_webhook_hosts,
                            .grace = milliseconds(config.scheduler.grace_ms),
                            .grace_max = seconds(config.scheduler.preempt_grace_max_seconds)});
  if (webhooks_->wanted()) {
    host_->observer().add_listener(
        [told = webhooks_.get()](const Observer::View& view, const Changes& changes) {
          told->on_changes(view, changes);
        });
  }
  fencing_ = std::make_unique<Fencing>(
      FencingOptions{.command = config.scheduler.fence_command,
                     .after = seconds(config.scheduler.fence_after_seconds),
                     .timeout = seconds(config.scheduler.fence_timeout_seconds)},
      [this](NodeId node, const std::string& boot_id) {
        host_->propose(ConfirmNodeDead{.node = node, .boot_id = boot_id, .by = "scheduler.fence_command"},
                       [](const Result<Decided>&) {});
      });
  if (fencing_->wanted()) {
    host_->observer().add_listener(
        [told = fencing_.get()](const Observer::View& view, const Changes& changes) {
          told->on_changes(view, changes);
        });
    host_->observer().read(0,
                           [told = fencing_.get()](const Observer::View& view) { told->look(view.state); });
  }
}

Result<Unit> ServiceImpl::open_pools(const Config& config) {
  if (config.machines.pools_file.empty()) return Unit{};
  const Result<PoolsFile> file = load_pools_file(config.machines.pools_file);
  if (!file.ok()) return file.error();
  std::promise<std::string> cluster;
  host_->observer().read(0,
                         [&](const Observer::View& view) { cluster.set_value(view.state.config.cluster); });
  Result<std::unique_ptr<machines::Machines>> opened =
      open_machines(*file, {.data_dir = std::filesystem::absolute(data_dir_).lexically_normal().string(),
                            .owner = cluster.get_future().get(),
                            .agent = [this] { return local_agent_words(ports_); }});
  if (!opened.ok()) return opened.error();
  machines_ = std::move(*opened);
  return Unit{};
}

void ServiceImpl::start_machines() {
  if (machines_ == nullptr) return;
  machines_->start(
      {.read =
           [this](uint64_t sequence, std::function<void(const State&, const std::vector<WaitReason>&)> look) {
             host_->observer().read(sequence, [look = std::move(look)](const Observer::View& view) {
               look(view.state, view.reasons);
             });
           },
       .propose =
           [this](Command command, std::function<void(bool, uint64_t)> done) {
             host_->propose(std::move(command), [done = std::move(done)](const Result<Decided>& decided) {
               done(decided.ok() && !decided->applied.rejection, decided.ok() ? decided->sequence : 0);
             });
           }});
}

Result<Unit> ServiceImpl::open_doors(const Config& config, const LeaderSeat* seat) {
  open_hooks(config);
  if (const Result<Unit> opened = open_pools(config); !opened.ok()) return opened;
  Result<std::string> token = api::load_or_create_token(data_dir_);
  if (!token.ok()) return token.error();
  api::ServerOptions options{.address = config.api.address};
  set_ports(config, options);
  set_tasks(config.tasks, options);
  options.metrics_page.path = config.metrics.path;
  options.metrics_page.name_space = config.metrics.name_space;
  if (seat != nullptr) {
    options.metrics_page.replica_health = seat->health;
    options.metrics_page.replica_metrics = seat->metrics;
  }
  options.cors_enabled = config.api.cors_enabled;
  options.cors_origins = config.api.cors_origins;
  options.copy_bytes_max = config.api.copy_bytes_max;
  options.limits = limits_of(config);
  options.preempt_grace_max = seconds(config.scheduler.preempt_grace_max_seconds);
  options.gangs = config.scheduler.enable_gang_scheduling;
  options.preempt_webhook_hosts = config.scheduler.preempt_webhook_hosts;
  options.anonymous = anonymous_options(config);
  options.anonymous.node_addresses_file = data_dir_ + "/node-addresses";
  options.default_priority = static_cast<int32_t>(config.scheduler.default_priority);
  options.step_max = milliseconds(config.scheduler.debug_blocked_ms);
  options.token = std::move(*token);
  options.token_file = std::filesystem::absolute(data_dir_).lexically_normal().string() + "/token";
  options.key_uses_file = data_dir_ + "/key-uses";
  options.old_agent_handshake = config.agent.accept_old_handshake;
  // A connection that a follower passes on comes from a local address, whoever sent it.
  const bool relayed = !config.replica.peers.empty();
  options.token_required = config.api.token_required || relayed;
  options.host_names = host_names_of(config);
  options.version = GPUSCHED_VERSION;
  options.tls = tls_;
  options.admin_group = config.api.admin_group;
  if (const Result<Unit> bound = bind_sockets(config, options); !bound.ok()) return bound;
  options.grpc_tls = config.api.grpc_tls ? tls_ : nullptr;
  if (const Result<Unit> opened = add_node_authority(config, data_dir_, options); !opened.ok()) return opened;
  options.tokens = tokens_.verifier();
  options.sign_in = tokens_.sign_in();
  options.audit = audit_.get();
  // Before anybody is answered: who asks where the token is believes it only beside the port of who lives.
  ports_ = beside_ports(options);
  options.on_bound = [this, told = options.node_order_keys](const api::ServerPorts& bound) {
    publish_ports(bound);
    note_order_keys(told);
  };
  Result<std::unique_ptr<api::Server>> server =
      api::Server::start(options, *host_, history_, machines_.get());
  if (!server.ok()) return port_taken(server.error(), config);
  server_ = std::move(*server);
  start_machines();
  return Unit{};
}

void ServiceImpl::publish_ports(const api::ServerPorts& bound) {
  log_anonymous(config_, bound);
  ports_.http = bound.http;
  ports_.grpc = bound.grpc;
  ports_.metrics = bound.metrics;
  ports_.tasks_grpc = bound.tasks_grpc;
  ports_.tasks_http = bound.tasks_http;
  ports_.allocation = bound.allocation;
  // Without the file the service is as good: a full disk must not keep it from serving.
  const Result<Unit> written = write_ports_file(data_dir_, ports_);
  if (!written.ok()) {
    log_event(LogLevel::kWarning, "scheduler", "ports_file_not_written", {},
              {{"error", written.error().message}});
  }
}

/// For who ends a change of the key: whoever connects from now on is told.
void ServiceImpl::note_order_keys(const std::string& told) {
  if (told.empty()) return;
  const Result<Unit> noted = note_told_order_keys(authority_folder(data_dir_), told);
  if (!noted.ok()) {
    log_event(LogLevel::kWarning, "scheduler", "order_keys_not_noted", {},
              {{"error", noted.error().message}});
  }
}

int64_t ServiceImpl::active_jobs() {
  std::promise<int64_t> count;
  host_->observer().read(0, [&](const Observer::View& view) {
    count.set_value(view.state.count(JobState::kScheduled) + view.state.count(JobState::kRunning) +
                    view.state.count(JobState::kPreempted));
  });
  return count.get_future().get();
}

Result<Unit> ServiceImpl::reconfigure(const Config& config) {
  std::shared_ptr<const sign::TlsIdentity> identity;
  if (tls_ != nullptr && config.api.enable_tls) {
    // First, because it can fail, and then nothing has changed.
    Result<std::shared_ptr<const sign::TlsIdentity>> loaded = current_identity(config, data_dir_);
    if (!loaded.ok()) return loaded.error();
    identity = std::move(*loaded);
  }
  Result<JwtSetup> tokens = load_jwt(config);
  if (!tokens.ok()) return tokens.error();
  std::promise<Result<Unit>> done;
  host_->propose(
      Configure{.config = host_options(config, data_dir_).engine}, [&done](const Result<Decided>& decided) {
        if (!decided.ok()) return done.set_value(decided.error());
        if (!decided->applied.rejection) return done.set_value(Unit{});
        done.set_value(
            Error{.code = ErrorCode::kInvalidArgument, .message = describe(*decided->applied.rejection)});
      });
  const Result<Unit> taken = done.get_future().get();
  if (taken.ok() && identity != nullptr) {
    tls_->exchange(identity);
    log_identity(config, data_dir_, *identity);
  }
  if (taken.ok()) {
    warn_of_pools(*host_, config);
    config_ = config;
    tokens_.use(std::move(*tokens));
  }
  return taken;
}

void ServiceImpl::renew_certificate() {
  if (tls_ == nullptr) return;
  const Result<bool> made = renew_own_certificate(config_, data_dir_);
  if (made.ok() && !*made) return;
  Result<std::shared_ptr<const sign::TlsIdentity>> identity =
      made.ok() ? sign::TlsIdentity::load(tls_files(config_, data_dir_)) : made.error();
  if (!identity.ok()) {
    log_event(LogLevel::kError, "scheduler", "certificate_not_renewed", {},
              {{"why", identity.error().message}});
    return;
  }
  log_identity(config_, data_dir_, **identity);
  tls_->exchange(std::move(*identity));
}

void ServiceImpl::touch(std::function<void()> alive) {
  host_->touch([this, alive = std::move(alive)] {
    host_->observer().in_order([alive](const Observer::View&) { alive(); });
  });
}

void ServiceImpl::close_doors(Duration patience) {
  remove_ports_file(data_dir_);
  auto closed = std::make_shared<std::promise<void>>();
  std::future<void> over = closed->get_future();
  std::thread([this, closed] {
    server_->shutdown();
    closed->set_value();
  }).detach();
  (void)over.wait_for(std::chrono::nanoseconds(patience.ns));
}

void ServiceImpl::stop() {
  if (std::exchange(stopped_, true)) return;
  if (fencing_ != nullptr) fencing_->stop();
  if (machines_ != nullptr) machines_->stop();
  tokens_.stop();
  if (server_ != nullptr) server_->shutdown();
  remove_ports_file(data_dir_);  // As long as anybody was answered it says by whom.
  host_->stop();
  if (webhooks_ != nullptr) webhooks_->stop();
  server_.reset();
  audit_.reset();
}

/// A long recovery ends on a signal. From the first open door on a signal waits for the orderly end instead.
Result<std::unique_ptr<Host>> recover(const Config& config, const std::string& data_dir,
                                      const LeaderSeat* seat) {
  const EndsOnSignal meanwhile;
  return open_shared_host(host_options(config, data_dir), seat == nullptr ? nullptr : seat->journal);
}

}  // namespace

Result<std::unique_ptr<Service>> Service::start(const Config& config, const std::string& data_dir,
                                                const LeaderSeat* seat) {
  // Before a recovery that may be long.
  Result<std::shared_ptr<sign::TlsServer>> tls = load_tls(config, data_dir);
  if (!tls.ok()) return tls.error();
  Result<JwtSetup> tokens = load_jwt(config);
  if (!tokens.ok()) return tokens.error();
  Result<std::unique_ptr<Host>> host = recover(config, data_dir, seat);
  if (!host.ok()) return host.error();
  const RecoveryReport recovery = (*host)->recovery();
  warn_of_pools(**host, config);
  auto service =
      std::make_unique<ServiceImpl>(std::move(*host), config, data_dir, std::move(*tls), std::move(*tokens));
  service->open_history(config);
  const Result<Unit> audited = service->open_audit(config);
  if (seat != nullptr) seat->free_ports();
  const Result<Unit> opened = audited.ok() ? service->open_doors(config, seat) : audited;
  if (!opened.ok()) {
    const EndsOnSignal meanwhile;
    service.reset();
    return opened.error();
  }
  log_event(LogLevel::kInfo, "scheduler", "scheduler_started", {},
            {{"version", GPUSCHED_VERSION},
             {"http_port", service->ports().http},
             {"grpc_port", service->ports().grpc},
             {"metrics_port", service->ports().metrics},
             {"allocation_port", config.doors.allocation_port},
             {"tasks_grpc_port", service->ports().tasks_grpc},
             {"tasks_http_port", service->ports().tasks_http},
             {"unix_socket", service->ports().unix_socket},
             {"agent_socket", service->ports().agent_socket},
             {"sequence", recovery.last_sequence},
             {"snapshot_sequence", recovery.snapshot_sequence},
             {"replayed_commands", recovery.replayed_commands},
             {"waiting_jobs", recovery.waiting_jobs},
             {"recovery_ms", recovery.elapsed_ms},
             {"notes", recovery.notes}});
  return std::unique_ptr<Service>(std::move(service));
}

}  // namespace gpusched
