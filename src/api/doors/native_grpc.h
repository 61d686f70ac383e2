#pragma once

#include <memory>
#include <string>

#include "api/backend.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class GrpcThread;

/// gpusched.v1.Scheduler: the native API. An empty token: everybody may call.
std::unique_ptr<grpc::Service> make_native_service(Backend& backend, GrpcThread& thread, std::string token);

}  // namespace gpusched::api
