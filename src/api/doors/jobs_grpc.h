#pragma once

#include <memory>
#include <string>

#include "api/backend.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class GrpcFinisher;

/// scheduler.SchedulerService: the jobs door over gRPC. An empty token: everybody may call.
std::unique_ptr<grpc::Service> make_jobs_service(Backend& backend, GrpcFinisher& finisher, std::string token);

}  // namespace gpusched::api
