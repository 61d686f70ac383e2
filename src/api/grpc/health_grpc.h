#pragma once

#include <algorithm>
#include <string>

#include "api/contract/backend.h"
#include "api/grpc/grpc_call.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace gpusched::api {

/// The standard health service of gRPC, for probes. It says the same to everybody, whoever calls and from
/// where: one word, and nothing about anybody's jobs.
class HealthService final : public GrpcService {
 public:
  HealthService(Backend& backend, GrpcThread& thread)
      : GrpcService(grpc::health::v1::Health::service_full_name()), backend_(backend) {
    serve_unary(thread, *this, "Check", &HealthService::Check);
  }

  void Check(const GrpcCall& call, const grpc::health::v1::HealthCheckRequest* request,
             grpc::health::v1::HealthCheckResponse* response) {
    const auto methods = grpc_methods();
    const bool is_known =
        request->service().empty() || std::ranges::any_of(methods, [&](const GrpcMethodRow& row) {
          return row.service == request->service();
        });
    if (!is_known)
      return call.fail({ErrorKind::kNotFound, "this scheduler has no service " + request->service()});
    response->set_status(backend_.health().serving ? grpc::health::v1::HealthCheckResponse::SERVING
                                                   : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
    call.finish();
  }

 private:
  Backend& backend_;
};

}  // namespace gpusched::api
