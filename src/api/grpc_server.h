#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/calls/call_note.h"
#include "api/contract/backend.h"
#include "api/contract/caller.h"
#include "api/doors/agent_tasks/agent_tasks_grpc.h"
#include "api/doors/events/event_feed.h"
#include "api/http/request_meter.h"
#include "api/limits/admission.h"
#include "base/result.h"
#include "base/time.h"
#include "host/host.h"
#include "ops/socket_file.h"
#include "sign/tls_context.h"

namespace gpusched::api {

class NodeAddresses;
class NodeEnrollment;

struct GrpcServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;        ///< 0: any free one.
  uint16_t tasks_port = 0;  ///< All services are there, too; 0: nowhere else.
  Doorkeeper doorkeeper = {};
  std::string token_file = {};              ///< Where the token is; see NodeServiceOptions.
  bool old_agent_handshake = false;         ///< See NodeServiceOptions.
  Admission* admission = nullptr;           ///< Limits for all calls but agents'; null: nobody is limited.
  Duration message_wait = seconds(30);      ///< A call whose message is not there by then is ended.
  Duration connection_idle = minutes(10);   ///< A connection without a call for so long is closed.
  std::size_t address_connections_max = 0;  ///< See GrpcListenerOptions; so is the next one.
  bool bounds_loopback = false;
  RequestMeter* reads = nullptr;  ///< See GrpcThreadOptions.
  RequestMeter* writes = nullptr;
  audit::AuditLog* audit = nullptr;                      ///< Null: there is none. It must outlive the server.
  std::shared_ptr<const sign::TlsServer> tls = nullptr;  ///< None: plain.
  /// Agents of this machine come there without a token; none: nowhere.
  std::shared_ptr<ops::SocketFile> agent_socket = nullptr;
  std::string version = {};  ///< Told to agents.
  NodeEnrollment* enrollment =
      nullptr;  ///< Desk of nodes' identities; null: there are none. It must outlive the server.
  NodeAddresses* node_addresses = nullptr;  ///< See NodeServiceOptions. It must outlive the server.
  AgentTasksOptions tasks = {};
  TaskIndex* task_index = nullptr;  ///< It must outlive the server.
  Duration shutdown_wait = seconds(5);
  Duration step_max = {};   ///< See GrpcThreadOptions.
  RunLater run_later = {};  ///< Where watches have their timers; it must run things while the server serves.
};

/// The gRPC port with its four services: the native API, the jobs door, the tasks of agents, the node
/// protocol.
class GrpcServer {
 public:
  GrpcServer(const GrpcServerOptions& options, Backend& backend, Host& host);
  ~GrpcServer();

  /// Begins to serve, at most so many connections at a time; 0: no bound. Once. When the address cannot be
  /// listened on: kLocked if somebody else does, kIo otherwise; the error's field is api.grpc_port, or
  /// tasks.grpc_port.
  Result<Unit> start(std::size_t connections_max = 0);

  uint16_t port() const;
  /// Connections that were closed at once: their address, or all, had as many as they may. Any thread.
  uint64_t connections_turned_away() const;
  /// Sends the answers that wait for their group. Any thread.
  void flush();
  /// Ends agents' streams, lets calls finish for a while, and returns when all is closed. Again: does
  /// nothing.
  void shutdown();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpusched::api
