#pragma once

#include <memory>
#include <string>

#include "api/backend.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class GrpcThread;

/// scheduler.SchedulerService: the jobs door over gRPC. An empty token: everybody may call.
std::unique_ptr<grpc::Service> make_jobs_service(Backend& backend, GrpcThread& thread, std::string token);

}  // namespace gpusched::api
