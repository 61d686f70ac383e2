#pragma once

#include <memory>

#include "api/contract/backend.h"
#include "api/contract/caller.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace gpusched::api {

class GrpcThread;

/// gpusched.v1.Services: the native API's calls about services. The backend, the thread and the doorkeeper
/// must outlive it.
std::unique_ptr<grpc::Service> make_services_service(Backend& backend, GrpcThread& thread,
                                                     const Doorkeeper& doorkeeper);

}  // namespace gpusched::api
