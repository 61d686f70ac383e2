#include "api/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "api/backend/history/history_service.h"
#include "api/backend/host_backend.h"
#include "api/backend/keys/key_uses.h"
#include "api/backend/machines/machine_service.h"
#include "api/backend/nodes/node_enrollment.h"
#include "api/contract/token.h"
#include "api/doors/agent_tasks/agent_tasks_rest.h"
#include "api/doors/allocation/allocation_errors.h"
#include "api/doors/allocation/allocation_rest.h"
#include "api/doors/dashboard/dashboard_rest.h"
#include "api/doors/jobs/jobs_rest.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/session/session_rest.h"
#include "api/doors/sign_in/sign_in_rest.h"
#include "api/doors/tasks/tasks_rest.h"
#include "api/grpc_server.h"
#include "api/http/http_server.h"
#include "api/http/rest_gate.h"
#include "api/http/unix_callers.h"
#include "api/limits/network_callers.h"
#include "api/limits/node_addresses.h"
#include "api/metrics/metrics_text.h"
#include "api/metrics/process_metrics.h"
#include "log/log.h"

namespace gpusched::api {

namespace {

/// Servers whose answers wait for the end of a group. The host may call it for as long as the host lives.
class Waiting {
 public:
  void set(HttpServer* http, GrpcServer* grpc) {
    const std::lock_guard lock(mutex_);
    http_ = http;
    grpc_ = grpc;
  }
  void flush() {
    const std::lock_guard lock(mutex_);
    if (http_ != nullptr) http_->flush();
    if (grpc_ != nullptr) grpc_->flush();
  }

 private:
  std::mutex mutex_;
  HttpServer* http_ = nullptr;
  GrpcServer* grpc_ = nullptr;
};

std::function<std::optional<SignIn>()> sign_in_of(const ServerOptions& options) {
  if (options.tokens == nullptr) return nullptr;
  return [enrollment = options.tokens] { return enrollment->sign_in(); };
}

/// The REST doors.
struct RestDoors {
  RestDoors(HostBackend& backend, HistoryBackend& history, MachineBackend& machines,
            const ServerOptions& options)
      : allocations(backend),
        agent_tasks(backend, backend.tasks()),
        rest(backend, options.version, options.token_file),
        tasks(backend),
        signing(backend, options.sign_in),
        native(
            backend, options.version, sign_in_of(options),
            [this](const HttpRequest& request) { return signing.banner(request); }, &history, &machines),
        sessions(backend, options.copy_bytes_max),
        dashboard(backend, {.version = options.version, .has_sign_in = [flow = options.sign_in] {
                              return flow != nullptr && flow->place() != nullptr;
                            }}) {}

  void attach(HttpServer& server) {
    allocations.attach(server);
    rest.attach(server);
    native.attach(server);
    sessions.attach(server);
  }
  void handle(HttpRequest&& request, const RestCallPtr& call) {
    if (sessions.handle(request, call)) return;
    if (SignInRest::takes(request.path)) return signing.handle(std::move(request), call);
    if (DashboardRest::takes(request.path)) return dashboard.handle(std::move(request), call);
    if (NativeRest::takes(request.path)) return native.handle(std::move(request), call);
    if (AllocationRest::takes(request.path)) return allocations.handle(std::move(request), call);
    if (TasksRest::takes(request.path)) return tasks.handle(std::move(request), call);
    if (AgentTasksRest::takes(request.path)) return agent_tasks.handle(std::move(request), call);
    rest.handle(std::move(request), call);
  }

  AllocationRest allocations;
  AgentTasksRest agent_tasks;
  JobsRest rest;
  TasksRest tasks;
  SignInRest signing;
  NativeRest native;
  SessionRest sessions;
  DashboardRest dashboard;
};

constexpr Duration kKeyUsesEvery = minutes(1);

/// A file that is none costs a warning, and no start.
KeyUses known_uses(const std::string& file) {
  if (file.empty()) return {};
  Result<KeyUses> uses = read_key_uses(file);
  if (uses.ok()) return std::move(*uses);
  log_event(LogLevel::kWarning, "scheduler", "key_uses_not_read", {}, {{"error", uses.error().message}});
  return {};
}

/// For those who reach the API's port alone, and with a credential.
constexpr std::string_view kMetricsOfApi = "/api/v1/metrics";

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& server_options, Host& host, history::History* kept,
       const machines::Machines* machines)
      : options(server_options),
        node_addresses(options.anonymous.node_addresses_file),
        backend(host,
                {.default_priority = options.default_priority,
                 .gangs = options.gangs,
                 .preempt_grace_max = options.preempt_grace_max,
                 .preempt_webhook_hosts = options.preempt_webhook_hosts,
                 .anonymous = {.priority_max = std::max(options.default_priority, options.anonymous.tier_max),
                               .priority_tier_max = options.anonymous.tier_max,
                               .networks_make_tenants = options.anonymous.networks_make_tenants,
                               .sets_quota = options.anonymous.sets_quota},
                 .node_addresses = &node_addresses,
                 .key_uses = known_uses(options.key_uses_file),
                 .learn_task_use = options.learn_task_use,
                 .machines = machines}),
        history(host, kept),
        machine_service(machines),
        enrollment(host, {.authority = options.node_authority,
                          .order_key = options.node_order_key,
                          .order_keys = options.node_order_keys,
                          .valid = options.node_certificate_valid,
                          .required = options.node_certificates_required}),
        networks({.networks = options.anonymous.networks,
                  .has_nodes = options.anonymous.has_nodes,
                  .nodes = &node_addresses,
                  .tokens = token_holders()}),
        doorkeeper{.token = options.token,
                   .token_required = !answers_without_credential(options.address, options.token_required,
                                                                 options.old_agent_handshake),
                   .everybody = options.everybody,
                   .keys = &backend.keys(),
                   .tokens = has_networks() ? &networks : token_holders()},
        doors{backend, history, machine_service, options},
        admission(options.limits),
        gate(api_options(),
             [this](HttpRequest&& request, const RestCallPtr& call) {
               const bool anonymous = call->caller()->kind == access::CallerKind::kAnonymous;
               if (!anonymous && request.path == kMetricsOfApi) {
                 call->note().name(access::Action::kSeeMetrics, {});
                 return answer_metrics(request, call);
               }
               doors.handle(std::move(request), call);
             }),
        metrics_gate(
            {.doorkeeper = for_metrics(),
             .host_names = options.host_names,
             .admission = &admission,
             .is_rated = false,
             .audit = options.audit,
             .door = audit::Door::kMetrics,
             .name_call = [](const HttpRequest&,
                             CallNote& note) { note.name(access::Action::kSeeMetrics, {}); }},
            [this](HttpRequest&& request, const RestCallPtr& call) { serve_metrics(request, call); }),
        allocation_gate(of_own_port(is_open_of_allocations, name_own_allocation_call,
                                    [](const HttpRequest&) -> ErrorWriter { return allocation_error; }),
                        [this](HttpRequest&& request, const RestCallPtr& call) {
                          if (is_about_document(request))
                            return doors.native.handle(std::move(request), call);
                          doors.allocations.handle(std::move(request), call);
                        }),
        tasks_gate(of_own_port(AgentTasksRest::is_health, AgentTasksRest::name_own_call, nullptr),
                   [this](HttpRequest&& request, const RestCallPtr& call) {
                     doors.agent_tasks.handle_own(std::move(request), call);
                   }),
        health_gate(health_options(),
                    [this](HttpRequest&& request, const RestCallPtr& call) {
                      doors.handle(std::move(request), call);
                    }),
        open_gate(open_options(),
                  [this](HttpRequest&& request, const RestCallPtr& call) {
                    doors.handle(std::move(request), call);
                  }),
        open_allocation_gate(open_options(),
                             [this](HttpRequest&& request, const RestCallPtr& call) {
                               doors.allocations.handle(std::move(request), call);
                             }),
        open_tasks_gate(open_options(),
                        [this](HttpRequest&& request, const RestCallPtr& call) {
                          doors.agent_tasks.handle_own(std::move(request), call);
                        }),
        open_metrics_gate(open_options(), [this](HttpRequest&& request, const RestCallPtr& call) {
          serve_metrics(request, call);
        }) {}

  const TokenHolders* token_holders() const {
    return options.sign_in != nullptr ? static_cast<const TokenHolders*>(options.sign_in.get())
                                      : options.tokens.get();
  }
  /// Whether callers without a credential are let in from other machines.
  bool has_networks() const {
    return !options.anonymous.networks.empty() && !options.token_required && !options.old_agent_handshake;
  }
  /// Metrics tell of tenants and users: they stay closed to those networks.
  Doorkeeper for_metrics() const {
    Doorkeeper keeper = doorkeeper;
    keeper.tokens = token_holders();
    return keeper;
  }
  /// For what is answered to everybody, and counts in no limit: health, and metrics that are open.
  RestOptions open_options() {
    RestOptions open = user_options();
    open.admission = nullptr;
    open.is_public = [](const HttpRequest&) { return true; };
    return open;
  }
  /// Options of doors for users, wherever they are.
  RestOptions user_options() {
    return {.doorkeeper = doorkeeper,
            .host_names = options.host_names,
            .cors_enabled = options.cors_enabled,
            .cors_origins = options.cors_origins,
            .admission = &admission,
            .reads = &rest_reads,
            .writes = &rest_writes,
            .audit = options.audit};
  }
  RestOptions api_options() {
    RestOptions all = user_options();
    all.token_file = options.token_file;
    all.is_public = [](const HttpRequest& request) {
      return NativeRest::is_public(request) || SignInRest::is_public(request) ||
             DashboardRest::is_public(request);
    };
    all.sessions = options.sign_in.get();
    all.refuse_page = [this](const HttpRequest& request, const RestCallPtr& call, const ApiError& error) {
      return doors.signing.refuse(request, call, error) || doors.dashboard.refuse(request, call, error);
    };
    all.errors_of = errors_of;
    all.name_call = name_call;
    return all;
  }
  /// For calls about the health with a credential, or from a page: they count in no rate.
  RestOptions health_options() {
    RestOptions all = api_options();
    all.is_rated = false;
    return all;
  }
  RestOptions of_own_port(bool (*is_public)(const HttpRequest&), void (*name)(const HttpRequest&, CallNote&),
                          ErrorWriter (*errors)(const HttpRequest&)) {
    RestOptions one = user_options();
    one.is_public = is_public;
    one.errors_of = errors;
    one.name_call = name;
    return one;
  }

  /// The page and the document about all doors, at a door's own port too: its clients look for them there.
  static bool is_about_document(const HttpRequest& request) {
    return request.path == "/docs" || request.path == "/openapi.json";
  }
  static bool is_open_of_allocations(const HttpRequest& request) {
    return AllocationRest::is_health(request) ||
           (is_about_document(request) && NativeRest::is_public(request));
  }
  static void name_own_allocation_call(const HttpRequest& request, CallNote& note) {
    if (is_about_document(request)) return NativeRest::name_call(request, note);
    AllocationRest::name_call(request, note);
  }

  static ErrorWriter errors_of(const HttpRequest& request) {
    return AllocationRest::takes(request.path) ? allocation_error : plain_error;
  }

  static void name_call(const HttpRequest& request, CallNote& note) {
    SessionRest::name_call(request, note);
    if (note.line.action) return;
    if (request.path == kMetricsOfApi) return note.name(access::Action::kSeeMetrics, {});
    if (NativeRest::takes(request.path)) return NativeRest::name_call(request, note);
    if (SignInRest::takes(request.path)) return SignInRest::name_call(request, note);
    if (DashboardRest::takes(request.path)) return DashboardRest::name_call(request, note);
    if (AllocationRest::takes(request.path)) return AllocationRest::name_call(request, note);
    if (TasksRest::takes(request.path)) return TasksRest::name_call(request, note);
    if (AgentTasksRest::takes(request.path)) return AgentTasksRest::name_call(request, note);
    JobsRest::name_call(request, note);
  }

  void serve_metrics(const HttpRequest& request, const RestCallPtr& call) {
    call->note().name(access::Action::kSeeMetrics, {});
    if (request.path != options.metrics_page.path) {
      return call->fail({ErrorKind::kNotFound, "no such path; metrics are at " + options.metrics_page.path});
    }
    answer_metrics(request, call);
  }

  void answer_metrics(const HttpRequest& request, const RestCallPtr& call) {
    if (request.method != HttpMethod::kGet && request.method != HttpMethod::kHead) {
      return call->fail({ErrorKind::kMethodNotAllowed, "metrics support GET only"});
    }
    backend.get_metrics(call->caller(), [this, call](Answer<MetricsView> answer) {
      if (!answer) return call->fail(answer.error());
      answer->counters.push_back({.name = "build_info",
                                  .type = "gauge",
                                  .help = "Always 1; the labels identify the program.",
                                  .value = 1,
                                  .labels = {{"version", options.version}}});
      add_reload(*answer);
      add_audit(*answer);
      history.add_metrics(*answer);
      machine_service.add_metrics(*answer);
      add_process(*answer);
      add_limits(*answer);
      for (const RequestMeter* meter : {&rest_reads, &rest_writes, &grpc_reads, &grpc_writes})
        add_requests(*meter, *answer);
      std::string text = metrics_text(*answer, options.metrics_page.name_space);
      if (options.metrics_page.replica_metrics != nullptr) text += options.metrics_page.replica_metrics();
      call->send({.body = std::move(text), .content_type = kMetricsContentType});
    });
  }

  void add_limits(MetricsView& metrics) {
    const CallerTable& callers = admission.callers();
    for (std::size_t i = 0; i < kRefusedReasons; ++i) {
      const auto reason = static_cast<Refused>(i);
      metrics.counters.push_back(
          {.name = "calls_refused_total",
           .type = "counter",
           .help = "Calls that were refused for what their caller or its address does, by reason.",
           .value = static_cast<int64_t>(callers.refused(reason)),
           .labels = {{"reason", std::string(to_string(reason))}}});
    }
    metrics.counters.push_back({.name = "calls_refused_total",
                                .type = "counter",
                                .value = static_cast<int64_t>(backend.refused_for_share()),
                                .labels = {{"reason", "queue"}}});
    for (const bool is_grpc : {false, true}) {
      const uint64_t refused =
          is_grpc ? grpc->connections_turned_away() : serving->counts().connections_turned_away;
      metrics.counters.push_back(
          {.name = "connections_refused_total",
           .type = "counter",
           .help = "Connections closed at once: their address had as many as it may, by server.",
           .value = static_cast<int64_t>(refused),
           .labels = {{"server", is_grpc ? "grpc" : "http"}}});
    }
    metrics.counters.push_back({.name = "calls_without_credential_total",
                                .type = "counter",
                                .help = "Calls that were let in without a credential.",
                                .value = static_cast<int64_t>(admission.calls_without_credential())});
    for (const CallRoom room : {CallRoom::kHttp, CallRoom::kGrpc}) {
      metrics.counters.push_back({.name = "calls_open",
                                  .type = "gauge",
                                  .help = "Calls under way, streams and sessions included, by server.",
                                  .value = static_cast<int64_t>(callers.calls_open(room)),
                                  .labels = {{"server", room == CallRoom::kHttp ? "http" : "grpc"}}});
    }
  }

  void add_audit(MetricsView& metrics) const {
    if (options.audit == nullptr) return;
    metrics.counters.push_back({.name = "audit_lines_total",
                                .type = "counter",
                                .help = "Lines written to the audit's file.",
                                .value = static_cast<int64_t>(options.audit->lines_written())});
    metrics.counters.push_back({.name = "audit_lines_lost_total",
                                .type = "counter",
                                .help = "Lines that neither the audit's queue nor its disk took.",
                                .value = static_cast<int64_t>(options.audit->lines_lost())});
  }
  /// How the last request to read the configuration again went, once there was one.
  void add_reload(MetricsView& metrics) const {
    const int64_t at = reloaded_at.load();
    if (at == 0) return;
    metrics.counters.push_back({.name = "config_last_reload_successful",
                                .type = "gauge",
                                .help = "1 if the last reload of the configuration succeeded.",
                                .value = reload_failed.load() ? 0 : 1});
    metrics.counters.push_back({.name = "config_last_reload_timestamp_seconds",
                                .type = "gauge",
                                .help = "Time of the last successful reload, in seconds since 1970.",
                                .value = at});
  }

  ~Impl() { waiting->set(nullptr, nullptr); }

  std::vector<HttpListener> make_listeners() {
    std::vector<HttpListener> listeners;
    const auto payer = [this](const HttpRequest& head) { return gate.payer_of(head); };
    listeners.push_back({.address = options.address,
                         .port = options.http_port,
                         .handler = through(gate, health_gate, open_gate),
                         .streams_body = NativeRest::streams_body,
                         .payer = payer,
                         .setting = "api.http_port",
                         .tls = options.tls});
    if (options.metrics_enabled) {
      listeners.push_back(
          {.address = options.address,
           .port = options.metrics_port,
           .handler = with_replica_health(options.anonymous.reads_metrics
                                              ? through(metrics_gate, open_metrics_gate, nullptr)
                                              : through(metrics_gate)),
           .setting = "metrics.port",
           .tls = options.tls});
    }
    const auto listen = [&](std::optional<uint16_t> port, RestGate& at, RestGate& open, const char* setting) {
      if (!port) return;
      listeners.push_back({.address = options.address,
                           .port = *port,
                           .handler = through(at, open, AllocationRest::is_health),
                           .payer = [&at](const HttpRequest& head) { return at.payer_of(head); },
                           .setting = setting,
                           .tls = options.tls});
    };
    listen(options.allocation_port, allocation_gate, open_allocation_gate, "doors.allocation_port");
    listen(options.tasks_http_port, tasks_gate, open_tasks_gate, "tasks.http_port");
    if (options.unix_socket != nullptr) {
      unix_callers =
          std::make_unique<UnixCallers>(UnixCallersOptions{.admin_group = options.admin_group,
                                                           .has_persons = !options.token_required,
                                                           .has_anonymous = !doorkeeper.token_required});
      listeners.push_back({.handler = through(gate, health_gate, open_gate),
                           .streams_body = NativeRest::streams_body,
                           .payer = payer,
                           .setting = "api.unix_socket",
                           .unix_socket = options.unix_socket,
                           .unix_callers = unix_callers.get()});
    }
    return listeners;
  }

  Result<Unit> start(Host& host) {
    grpc = std::make_unique<GrpcServer>(grpc_options(), backend, host);
    // Weak: the host calls it for as long as the host lives.
    backend.on_group_done([to = std::weak_ptr(waiting)] {
      if (const std::shared_ptr<Waiting> waiting_now = to.lock()) waiting_now->flush();
    });
    // The first request comes when every port is bound: a start that fails has nobody to answer.
    const HttpServerOptions bounds{.address_connections_max = options.limits.connections_max,
                                   .step_max = options.step_max};
    auto http_started = HttpServer::start(bounds, make_listeners(), [this](HttpServer& server) {
      serving = &server;
      doors.attach(server);
      timers = &server;
      end_expired_later(server);
      admission.callers().set_room(CallRoom::kHttp, server.connection_max());
      waiting->set(&server, grpc.get());
      // The half of the process's files that HTTP leaves.
      const Result<Unit> listening = grpc->start(server.connection_max());
      if (!listening) {
        waiting->set(nullptr, nullptr);
        return listening;
      }
      tell_ports(server);
      return listening;
    });
    if (!http_started) return http_started.error();
    http = std::move(*http_started);
    if (!options.key_uses_file.empty()) {
      key_uses = std::make_unique<KeyUseKeeper>(options.key_uses_file, kKeyUsesEvery,
                                                [this] { return backend.keys().uses(); });
    }
    return Unit{};
  }

  GrpcServerOptions grpc_options() {
    return {.address = options.address,
            .port = options.grpc_port,
            .tasks_port = options.tasks_grpc_port,
            .doorkeeper = doorkeeper,
            .token_file = options.token_file,
            .old_agent_handshake = options.old_agent_handshake,
            .admission = &admission,
            .message_wait = options.grpc_message_wait,
            .address_connections_max = options.limits.connections_max,
            .reads = &grpc_reads,
            .writes = &grpc_writes,
            .audit = options.audit,
            .tls = options.grpc_tls,
            .agent_socket = options.agent_socket,
            .version = options.version,
            .enrollment = &enrollment,
            .node_addresses = &node_addresses,
            .tasks = options.tasks,
            .task_index = &backend.tasks(),
            .step_max = options.step_max,
            .run_later = [this](Duration delay, std::function<void()> call) {
              timers->run_after(delay, std::move(call));
            }};
  }

  void tell_ports(const HttpServer& server) {
    ports = {.http = server.ports()[0], .grpc = grpc->port(), .tasks_grpc = options.tasks_grpc_port};
    std::size_t next = 1;
    if (options.metrics_enabled) ports.metrics = server.ports()[next++];
    if (options.allocation_port) ports.allocation = server.ports()[next++];
    if (options.tasks_http_port) ports.tasks_http = server.ports()[next++];
    if (options.on_bound != nullptr) options.on_bound(ports);
  }

  /// Ends calls under a key, a provider's token or a node's certificate when that expires; once a second.
  void end_expired_later(HttpServer& server) {
    server.run_after(seconds(1), [this, &server] {
      backend.keys().end_expired();
      enrollment.end_expired();
      if (options.tokens != nullptr) options.tokens->end_expired();
      if (options.sign_in != nullptr) options.sign_in->sweep();
      end_expired_later(server);
    });
  }

  static bool is_health(const HttpRequest& request) {
    return request.path == "/health" || request.path == "/api/v1/health" ||
           request.path == "/api/gpuscheduler/v1/health";
  }
  /// Whether it reads, shows nothing that says who it is, and is of no page on this machine, which could be
  /// anybody's.
  static bool is_plain_read(const HttpRequest& request) {
    const bool reads = request.method == HttpMethod::kGet || request.method == HttpMethod::kHead;
    if (!reads || !request.authorization.empty() || request.peer_caller != nullptr) return false;
    if (!is_loopback(request.peer) && !request.peer.starts_with("unix:")) return true;
    const std::string_view host = request.host;
    return request.origin.empty() && request.fetch_site.empty() &&
           is_loopback(host.substr(0, host.starts_with('[') ? host.find(']') + 1 : host.rfind(':')));
  }
  /// The same, but what is plainly read goes through `open`: all, or what `is_open` says.
  static HttpHandler through(RestGate& gate, RestGate& open, bool (*is_open)(const HttpRequest&)) {
    return [&gate, &open, is_open](HttpRequest&& request, HttpReply reply) {
      const bool goes_open = (is_open == nullptr || is_open(request)) && is_plain_read(request);
      (goes_open ? open : gate).handle(std::move(request), std::move(reply));
    };
  }
  /// For the port of all doors: questions for the health go through `health`, or through `open` where they
  /// are plain.
  static HttpHandler through(RestGate& gate, RestGate& health, RestGate& open) {
    return [&gate, &health, &open](HttpRequest&& request, HttpReply reply) {
      RestGate& of_health = is_plain_read(request) ? open : health;
      (is_health(request) ? of_health : gate).handle(std::move(request), std::move(reply));
    };
  }
  /// One of several schedulers says how it is on the port of the metrics, whether it leads or not.
  HttpHandler with_replica_health(HttpHandler metrics) const {
    if (options.metrics_page.replica_health == nullptr) return metrics;
    return [this, metrics = std::move(metrics)](HttpRequest&& request, HttpReply reply) {
      const bool reads = request.method == HttpMethod::kGet || request.method == HttpMethod::kHead;
      if (reads && request.path == "/health")
        return reply.send({.body = options.metrics_page.replica_health()});
      metrics(std::move(request), std::move(reply));
    };
  }
  static HttpHandler through(RestGate& gate) {
    return [&gate](HttpRequest&& request, HttpReply reply) {
      gate.handle(std::move(request), std::move(reply));
    };
  }

  const ServerOptions options;
  NodeAddresses node_addresses;
  HostBackend backend;
  HistoryService history;
  MachineService machine_service;
  NodeEnrollment enrollment;
  const NetworkCallers networks;
  const Doorkeeper doorkeeper;
  RestDoors doors;
  Admission admission;  ///< For all doors together.
  RequestMeter rest_reads{"rest_read"}, rest_writes{"rest_write"}, grpc_reads{"grpc_read"},
      grpc_writes{"grpc_write"};
  std::atomic<int64_t> reloaded_at = 0;  ///< Seconds since 1970; 0: never.
  std::atomic<bool> reload_failed = false;
  RestGate gate;
  RestGate metrics_gate;
  RestGate allocation_gate;
  RestGate tasks_gate;
  RestGate health_gate, open_gate, open_allocation_gate, open_tasks_gate, open_metrics_gate;
  std::shared_ptr<Waiting> waiting = std::make_shared<Waiting>();
  ServerPorts ports;                          ///< From when all are bound.
  std::unique_ptr<UnixCallers> unix_callers;  ///< Before the server that asks it: it must outlive that.
  std::unique_ptr<GrpcServer> grpc;
  HttpServer* serving = nullptr;  ///< The same as `http`, also while that begins.
  std::unique_ptr<HttpServer> http;
  HttpServer* timers = nullptr;            ///< The same, from before the first call.
  std::unique_ptr<KeyUseKeeper> key_uses;  ///< Null: nowhere.
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { shutdown(); }

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Host& host,
                                              history::History* history, const machines::Machines* machines) {
  if (!is_loopback(options.address) && options.token.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "listening on " + options.address +
                     " requires the shared token; without a token, listen on 127.0.0.1",
                 "api.address"};
  }
  const bool any_origin =
      std::find(options.cors_origins.begin(), options.cors_origins.end(), "*") != options.cors_origins.end();
  if (!is_loopback(options.address) && options.cors_enabled && any_origin &&
      options.anonymous.networks.empty()) {
    return Error{
        ErrorCode::kInvalidArgument,
        "api.cors_origins is * (any origin), but the scheduler listens on " + options.address +
            ", which other machines can reach; list the origins, set api.cors_enabled: false, listen on "
            "127.0.0.1, or name the networks of clients that have no credential in "
            "api.anonymous_networks, with which * is taken",
        "api.cors_origins"};
  }
  if (options.tokens != nullptr) options.tokens->attach(host);
  auto impl = std::make_unique<Impl>(options, host, history, machines);
  const Result<Unit> started = impl->start(host);
  if (!started) return started.error();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const ServerPorts& Server::ports() const { return impl_->ports; }

void Server::note_reload(bool worked) {
  impl_->reload_failed = !worked;
  impl_->reloaded_at =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
}

void Server::shutdown() {
  // A browser that waits for the provider is answered while there still is somebody to answer.
  if (impl_->options.sign_in != nullptr) impl_->options.sign_in->stop();
  // Side by side: each may take its whole time.
  std::thread grpc_down([this] {
    if (impl_->grpc != nullptr) impl_->grpc->shutdown();
  });
  if (impl_->http != nullptr) impl_->http->shutdown();
  grpc_down.join();
  if (impl_->key_uses != nullptr) impl_->key_uses->stop();
  impl_->waiting->set(nullptr, nullptr);
}

}  // namespace gpusched::api
