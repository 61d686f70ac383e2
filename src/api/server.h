#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/backend/tokens/sign_in_flow.h"
#include "api/backend/tokens/token_verifier.h"
#include "api/contract/caller.h"
#include "api/doors/agent_tasks/agent_tasks_grpc.h"
#include "api/limits/caller_table.h"
#include "audit/audit_log.h"
#include "base/net/ip_network.h"
#include "base/result.h"
#include "base/session_limits.h"
#include "host/host.h"
#include "ops/socket_file.h"
#include "sign/authority.h"
#include "sign/keys/order_key.h"
#include "sign/tls_context.h"

namespace gpusched::history {
class History;
}
namespace gpusched::machines {
class Machines;
}

namespace gpusched::api {

/// Ports that are listened on.
struct ServerPorts {
  uint16_t http = 0, grpc = 0;
  uint16_t metrics = 0;     ///< 0: metrics are off.
  uint16_t allocation = 0;  ///< 0: allocations have no port of their own.
  uint16_t tasks_grpc = 0;  ///< 0: gRPC has no second port.
  uint16_t tasks_http = 0;  ///< 0: tasks of agents have no HTTP port of their own.
};

/// Callers without a credential: where they are let in beside loopback, and what they may do.
struct AnonymousOptions {
  int32_t tier_max = 1'000;              ///< The highest priority tier that they give.
  std::vector<IpNetwork> networks = {};  ///< Empty: no other machine is let in.
  bool has_nodes = false;                ///< Addresses of nodes in these networks are let in, too.
  bool networks_make_tenants = false;    ///< From these networks, tenants are made, changed and deleted.
  bool sets_quota = false;               ///< They divide the cluster into pools.
  bool reads_metrics = false;  ///< Metrics on their own port are read without a credential, from anywhere.
  std::string node_addresses_file = {};  ///< Where nodes' addresses are kept over restarts. Empty: nowhere.
};

/// Answers of the port of the metrics, beside the metrics themselves.
struct MetricsPage {
  std::string path = "/metrics";
  std::string name_space = "gpu_scheduler";  ///< Begins every metric's name.
  /// For one of several schedulers: the JSON at `/health`, for everybody, and text behind the metrics. Called
  /// on the HTTP server's thread. None: it is the only one.
  std::function<std::string()> replica_health = nullptr, replica_metrics = nullptr;
};

/// Settings of the doors. Ports: 0 picks a free one.
struct ServerOptions {
  std::string address =
      "127.0.0.1";  ///< For all ports. Any but loopback needs a credential; see AnonymousOptions.
  uint16_t http_port = 8080;
  uint16_t grpc_port = 9090;
  uint16_t tasks_grpc_port = 0;  ///< gRPC is served there, too; 0: nowhere else.
  AgentTasksOptions tasks = {};
  bool learn_task_use = true;  ///< See HostBackendOptions.
  bool metrics_enabled = true;
  uint16_t metrics_port = 9091;
  std::optional<uint16_t> allocation_port = std::nullopt;  ///< For allocations alone; none: no such port.
  std::optional<uint16_t> tasks_http_port = std::nullopt;  ///< For tasks of agents alone; none: no such port.
  MetricsPage metrics_page = {};
  bool cors_enabled = false;
  std::vector<std::string> cors_origins;
  CallerLimits limits = {};  ///< For REST and gRPC together.
  int32_t default_priority = 100;
  AnonymousOptions anonymous = {};
  Duration grpc_message_wait = seconds(30);  ///< A gRPC call whose message is not there by then is ended.
  Duration preempt_grace_max = minutes(5);   ///< Most that a job may ask for.
  bool gangs = true;                         ///< Jobs may be on several nodes.
  std::vector<std::string> preempt_webhook_hosts;      ///< Hosts that jobs may name URLs of.
  int64_t copy_bytes_max = limits::kFileBytesDefault;  ///< The largest file that is copied out of a job.
  std::string token;                                   ///< The shared one; see api/contract/token.h.
  std::string token_file;               ///< Where it is, for whoever is on this machine and may read it.
  bool old_agent_handshake = false;     ///< See NodeServiceOptions.
  bool token_required = false;          ///< Also on loopback: there are no anonymous callers.
  std::vector<std::string> host_names;  ///< See RestOptions.
  CallerPtr everybody = nullptr;        ///< For tests of doors: who all callers are.
  /// Where it is kept when keys were last used, over restarts. Empty: nowhere.
  std::string key_uses_file = {};
  std::shared_ptr<const sign::TlsServer> tls = nullptr;       ///< For HTTP and metrics; none: plain.
  std::shared_ptr<const sign::TlsServer> grpc_tls = nullptr;  ///< For gRPC; none: plain.
  /// Authority that signs nodes' certificates; their validity and whether every node must have one follow.
  /// None: nobody gets any.
  std::shared_ptr<const sign::Authority> node_authority = nullptr;
  std::shared_ptr<const sign::OrderKey> node_order_key =
      nullptr;  ///< Signs what such nodes are ordered to do.
  /// Public keys that such nodes are told of when they connect, as those that orders may be signed with;
  /// empty: what they know is right.
  std::string node_order_keys = {};
  Duration node_certificate_valid = hours(24 * 90);
  bool node_certificates_required = false;
  /// HTTP is served there, too, without TLS; none: nowhere else.
  std::shared_ptr<ops::SocketFile> unix_socket = nullptr;
  /// Agents of this machine come there without a token, over gRPC without TLS; none: nowhere.
  std::shared_ptr<ops::SocketFile> agent_socket = nullptr;
  std::string admin_group;  ///< Its members are administrators over that socket; empty: nobody is.
  std::shared_ptr<TokenVerifier> tokens =
      nullptr;  ///< Tokens of a provider of identities; none: none are taken.
  /// People who sign in there with a browser; none: nobody does. With the same tokens.
  std::shared_ptr<SignInFlow> sign_in = nullptr;
  Duration step_max = {};  ///< Longest step of the threads of HTTP and gRPC, as for a LoopWatch; zero: any.
  std::string version;
  audit::AuditLog* audit = nullptr;  ///< Null: none is kept. It must outlive the server.
  /// Told the ports once all are bound, and before the first HTTP request is answered.
  std::function<void(const ServerPorts&)> on_bound = nullptr;
};

/// All doors of a scheduler. The end goes in this order: `shutdown`, Host::stop, then the destructors.
class Server {
 public:
  /// Begins to serve. kInvalidArgument: an address that needs a token without one; kLocked: a port that
  /// somebody else has, and its setting as the error's field. After an error nothing of it is left with the
  /// host. `history`, `machines`: null: there are none; they must outlive the server.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, Host& host,
                                               history::History* history = nullptr,
                                               const machines::Machines* machines = nullptr);
  ~Server();

  uint16_t http_port() const { return ports().http; }
  uint16_t grpc_port() const { return ports().grpc; }
  uint16_t allocation_port() const { return ports().allocation; }  ///< 0 when there is none.
  uint16_t tasks_http_port() const { return ports().tasks_http; }  ///< 0 when there is none.
  uint16_t metrics_port() const { return ports().metrics; }        ///< 0 when metrics are off.

  /// For the metrics: the configuration was just read again, well or not. Any thread.
  void note_reload(bool worked);

  /// Stops listening, lets what is in flight finish for at most five seconds and closes all. The host must
  /// still run: its answers are waited for. Again: does nothing.
  void shutdown();

 private:
  struct Impl;
  const ServerPorts& ports() const;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpusched::api
