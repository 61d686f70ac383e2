#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/net/endpoint.h"

/// A persistent worker that is a client of an HTTP endpoint: it speaks the frames of workers
/// (src/shim/worker), sends each task's payload there and answers with what it gets.
namespace gpusched::shim {

/// Its first argument; then the endpoint, as `to_text` writes it.
inline constexpr const char* kEndpointFlag = "--endpoint";

/// Sends tasks until the other end of `frames`, a stream socket, is closed. `tasks_max`: so many it says that
/// it takes at once. Returns the exit code: 0, or 1 where what came is no frame.
int serve_endpoint(int frames, const Endpoint& endpoint, uint32_t tasks_max);

/// The program: what is behind its flag, and in its environment the descriptor and how many tasks at once.
int run_endpoint_worker(const std::vector<std::string>& words);

}  // namespace gpusched::shim
