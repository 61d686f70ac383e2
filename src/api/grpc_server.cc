#include "api/grpc_server.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_posix.h>

#include <chrono>

#include "api/doors/jobs/jobs_grpc.h"
#include "api/doors/native/native_grpc.h"
#include "api/doors/native/services/services_grpc.h"
#include "api/doors/node/node_grpc.h"
#include "api/grpc/agent_socket.h"
#include "api/grpc/grpc_call.h"
#include "api/grpc/grpc_listener.h"
#include "api/grpc/grpc_log.h"
#include "api/grpc/health_grpc.h"
#include "api/grpc/reflection_grpc.h"
#include "api/grpc/tls_credentials.h"

namespace gpusched::api {
namespace {

constexpr int kMessageBytesMax = 8 << 20;  // A thousand jobs of ordinary size.
constexpr int kHeaderBytesMax = 16 << 10;
// Most bytes that all connections together have received and no call has taken. Beyond it gRPC slows its
// reading down and at last ends calls, so that unfinished messages of strangers cost no more.
constexpr std::size_t kBufferedBytesMax = 64 << 20;
constexpr int kStreamsMax = 4'096;  // Calls under way on one connection.

}  // namespace

struct GrpcServer::Impl {
  Impl(const GrpcServerOptions& server_options, Backend& backend, Host& host)
      : options(server_options),
        thread({.message_wait = options.message_wait,
                .admission = options.admission,
                .doorkeeper = &options.doorkeeper,
                .reads = options.reads,
                .writes = options.writes,
                .audit = options.audit,
                .step_max = options.step_max}),
        native(make_native_service(backend, thread, options.doorkeeper, options.run_later)),
        services(make_services_service(backend, thread, options.doorkeeper)),
        jobs(make_jobs_service(backend, thread, options.doorkeeper)),
        tasks(make_agent_tasks_service(backend, *options.task_index, thread, options.doorkeeper,
                                       options.tasks)),
        health(backend, thread),
        reflection(thread),
        old_reflection(thread),
        nodes(host, thread,
              {.token = options.doorkeeper.token,
               .token_file = options.token_file,
               .everybody_trusted = options.doorkeeper.everybody != nullptr,
               .old_handshake = options.old_agent_handshake,
               .enrollment = options.enrollment,
               .admission = options.admission,
               .addresses = options.node_addresses,
               .version = options.version}) {}

  const GrpcServerOptions options;
  GrpcThread thread;  // Before the services: they use it.
  std::unique_ptr<grpc::Service> native, services, jobs, tasks;
  HealthService health;
  ReflectionV1 reflection;
  ReflectionV1Alpha old_reflection;
  NodeService nodes;
  std::shared_ptr<grpc::ServerCredentials> credentials;  // Before the server, which asks them.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  GrpcListener listener;                // Behind the server, which it gives connections to.
  std::unique_ptr<AgentSocket> agents;  // So is this one.
  uint16_t port = 0;
  bool down = false;
};

GrpcServer::GrpcServer(const GrpcServerOptions& options, Backend& backend, Host& host)
    : impl_(std::make_unique<Impl>(options, backend, host)) {}
GrpcServer::~GrpcServer() { shutdown(); }

Result<Unit> GrpcServer::start(std::size_t connections_max) {
  route_grpc_log();
  // gRPC's own locks look for cycles at every use where they were built with their checks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  Impl* const impl = impl_.get();
  Result<uint16_t> port = impl->listener.listen(impl->options.address, impl->options.port, "api.grpc_port");
  if (!port) return port.error();
  impl->port = *port;
  if (impl->options.tasks_port != 0) {
    port = impl->listener.listen(impl->options.address, impl->options.tasks_port, "tasks.grpc_port");
    if (!port) return port.error();
  }
  grpc::ServerBuilder builder;
  impl->credentials = impl->options.tls == nullptr ? grpc::InsecureServerCredentials()
                                                   : make_tls_credentials(impl->options.tls);
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  impl->acceptor = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, impl->credentials);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kHeaderBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
  // A client that says nothing, does not go on with its handshake, or speaks no HTTP/2, is let go.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  // Connections that nobody calls on go. A client connects again by itself.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(impl->options.connection_idle.ms()));
  // An agent that was cut off without a word is noticed, and so are its orders that go nowhere.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Filters that every call would pass and that nothing here needs: a client's deadline ends its call from
  // its side.
  for (const char* const filter :
       {GRPC_ARG_ENABLE_CENSUS, GRPC_ARG_ENABLE_DEADLINE_CHECKS, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION,
        GRPC_ARG_ENABLE_CHANNELZ, GRPC_ARG_HTTP2_BDP_PROBE}) {
    builder.AddChannelArgument(filter, 0);
  }
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetResourceQuota(grpc::ResourceQuota("gpu-scheduler").Resize(kBufferedBytesMax));
  impl->thread.join(builder);
  builder.RegisterService(impl->native.get());
  builder.RegisterService(impl->services.get());
  builder.RegisterService(impl->jobs.get());
  builder.RegisterService(impl->tasks.get());
  builder.RegisterService(&impl->health);
  builder.RegisterService(&impl->reflection);
  builder.RegisterService(&impl->old_reflection);
  builder.RegisterService(impl->nodes.service());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return Error{ErrorCode::kIo, "gRPC does not start", "api.grpc_port"};
  impl->thread.start();
  const Result<Unit> listening =
      impl->listener.start({.address_connections_max = impl->options.address_connections_max,
                            .connections_max = connections_max,
                            .bounds_loopback = impl->options.bounds_loopback},
                           [impl](int listener, int connection) {
                             grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters one;
                             one.listener_fd = listener;
                             one.fd = connection;
                             impl->acceptor->HandleNewConnection(&one);
                           });
  if (!listening) return listening;
  if (impl->options.agent_socket == nullptr) return Unit{};
  impl->agents = std::make_unique<AgentSocket>(impl->options.agent_socket, [impl](int connection) {
    grpc::AddInsecureChannelFromFd(impl->server.get(), connection);
  });
  return impl->agents->start();
}

uint16_t GrpcServer::port() const { return impl_->port; }
uint64_t GrpcServer::connections_turned_away() const { return impl_->listener.turned_away(); }
void GrpcServer::flush() { impl_->thread.flush(); }

void GrpcServer::shutdown() {
  if (impl_->down || impl_->server == nullptr) return;
  impl_->down = true;
  impl_->listener.stop();
  if (impl_->agents != nullptr) impl_->agents->stop();
  impl_->thread.close();
  impl_->nodes.close_all();
  impl_->server->Shutdown(std::chrono::system_clock::now() +
                          std::chrono::nanoseconds(impl_->options.shutdown_wait.ns));
  impl_->thread.stop();
}

}  // namespace gpusched::api
