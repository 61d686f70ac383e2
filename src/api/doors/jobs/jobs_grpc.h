#pragma once

#include <memory>

#include "api/contract/backend.h"
#include "api/contract/caller.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class GrpcThread;

/// scheduler.SchedulerService: the jobs door over gRPC. The doorkeeper must outlive it.
std::unique_ptr<grpc::Service> make_jobs_service(Backend& backend, GrpcThread& thread,
                                                 const Doorkeeper& doorkeeper);

}  // namespace gpusched::api
