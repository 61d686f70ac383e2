#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "sign/tls_context.h"

namespace gpusched::api {

/// A gRPC port that speaks TLS and nothing else. Clients may show a certificate, whose key they then have;
/// nothing else is known of it. Each connection gets the identity that `tls` has when it comes. A handshake
/// has gRPC's own time, and is made on gRPC's threads. They must outlive the server, which does not keep
/// them.
std::shared_ptr<grpc::ServerCredentials> make_tls_credentials(std::shared_ptr<const sign::TlsServer> tls);

/// gRPC's TLS takes what it cannot be told in another way from the environment. Before its first use in this
/// process, and before other threads.
void set_up_grpc_tls(bool allow_tls12);

}  // namespace gpusched::api
