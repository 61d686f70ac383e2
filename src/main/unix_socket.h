#pragma once

#include <memory>

#include "base/result.h"
#include "config/config.h"
#include "ops/socket_file.h"

namespace gpusched {

/// The Unix socket on which the API is to be served. Null: nowhere, which the log says if it was meant to be
/// in its usual place. An error about a path that somebody chose ends the start.
Result<std::shared_ptr<ops::SocketFile>> bind_api_socket(const Config::Api& api);
/// The same of the one for this machine's agents, to which only root and this process's user can connect.
Result<std::shared_ptr<ops::SocketFile>> bind_agent_socket(const Config& config);

}  // namespace gpusched
