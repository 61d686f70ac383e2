#pragma once

#include <memory>

#include "api/contract/backend.h"
#include "api/contract/caller.h"
#include "api/doors/events/event_feed.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class GrpcThread;

/// gpusched.v1.Scheduler: the native API. The doorkeeper must outlive it. Watches have their timers by
/// `run_later`.
std::unique_ptr<grpc::Service> make_native_service(Backend& backend, GrpcThread& thread,
                                                   const Doorkeeper& doorkeeper, RunLater run_later);

}  // namespace gpusched::api
