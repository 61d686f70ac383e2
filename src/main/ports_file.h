#pragma once

#include <string>

#include "base/result.h"
#include "main/serve.h"

namespace gpusched {

/// Writes `data_dir/ports.json` whole or not at all: {"http":N,"grpc":N,"metrics":N,"pid":N}, and behind that
/// "https":true when HTTP and the metrics speak TLS, "grpc_tls":true when gRPC does, "tasks_grpc":N when gRPC
/// has a second port, "tasks_http":N when tasks of agents have a port, "allocation":N when allocations have
/// one, "unix_socket":PATH when there is one, and "agent_socket":PATH when there is one for agents.
Result<Unit> write_ports_file(const std::string& data_dir, const BoundPorts& ports);
/// After a clean end nobody should find ports that are not served.
void remove_ports_file(const std::string& data_dir);

}  // namespace gpusched
